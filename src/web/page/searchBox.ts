import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

/** How long the user must pause typing before the search starts, in ms. */
const typingMs = 250;

/** A search input, which calls `find` after the user pauses typing. */
export function SearchBox(props: {
  placeholder: string;
  label: string;
  text: string;
  wide?: boolean;
  find: (text: string) => void;
}): VNode {
  const { placeholder, label, text, wide = false } = props;
  const [typed, setTyped] = useState(text);
  const find = useRef(props.find);
  find.current = props.find;
  useEffect(() => setTyped(text), [text]);
  useEffect(() => {
    if (typed === text) return undefined;
    const timer = setTimeout(() => find.current(typed), typingMs);
    return () => clearTimeout(timer);
  }, [typed]);
  const input = (event: Event): void => {
    if (event.target instanceof HTMLInputElement) setTyped(event.target.value);
  };
  return html`<input
    type="search"
    class=${wide ? "wide" : ""}
    placeholder=${placeholder}
    aria-label=${label}
    value=${typed}
    onInput=${input}
  />`;
}
