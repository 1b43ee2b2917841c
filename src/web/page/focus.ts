import { useLayoutEffect } from "preact/hooks";

/**
 * Moves the focus to another element when a change of the page has removed or moved the focused one. Without this, the
 * browser gives the focus to the document, and users of a keyboard or a screen reader have to start from the top.
 *
 * @param container returns the element whose content may change; null before it exists
 * @param remember called while the focused element still has its place; returns what finds the element that gets the focus
 */
export function useKeptFocus(
  container: () => HTMLElement | null,
  remember: (focused: HTMLElement) => () => HTMLElement | null,
): void {
  const { activeElement } = document;
  const isInside = activeElement instanceof HTMLElement && container()?.contains(activeElement) === true;
  const kept = isInside ? { focused: activeElement, find: remember(activeElement) } : null;
  useLayoutEffect(() => {
    if (kept === null || document.activeElement !== document.body) return;
    if (kept.focused.isConnected) kept.focused.focus();
    if (document.activeElement === document.body) kept.find()?.focus();
  });
}

export function focusMain(): void {
  const main = document.querySelector("main");
  if (main === null) return;
  main.tabIndex = -1;
  main.focus();
}

/** After a change of the view. */
export const focusMainSoon = (): void => void requestAnimationFrame(focusMain);
