import { useLayoutEffect } from "preact/hooks";

/**
 * Moves the focus to another element when a change of the page has removed or moved the focused one. Without this, the
 * browser gives the focus to the document, and users of a keyboard or a screen reader have to start from the top.
 *
 * @param container returns the element whose content may change; null before it exists
 * @param next returns the element that gets the focus, given the one that had it and what `remember` has returned
 * @param remember called while the element still has its place in the page
 */
export function useKeptFocus<T>(
  container: () => HTMLElement | null,
  remember: (focused: HTMLElement) => T,
  next: (focused: HTMLElement, remembered: T) => HTMLElement | null,
): void {
  const { activeElement } = document;
  const focused =
    activeElement instanceof HTMLElement && container()?.contains(activeElement) === true ? activeElement : null;
  const remembered = focused === null ? null : { value: remember(focused) };
  useLayoutEffect(() => {
    if (focused === null || remembered === null || document.activeElement !== document.body) return;
    if (focused.isConnected) focused.focus();
    if (document.activeElement === document.body) next(focused, remembered.value)?.focus();
  });
}

export function focusMainSoon(): void {
  requestAnimationFrame(() => {
    const main = document.querySelector("main");
    if (main === null) return;
    main.tabIndex = -1;
    main.focus();
  });
}
