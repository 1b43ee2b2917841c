import { html } from "htm/preact";
import type { VNode } from "preact";
import { fullTimeText } from "./format.js";

/**
 * A time with date, milliseconds and UTC offset, in the reader's time zone.
 *
 * @param props.text shown instead; the time then appears when the pointer rests on it
 */
export function Time({ at, text }: { at: string; text?: string }): VNode {
  const full = fullTimeText(at);
  return html`<time title=${text === undefined ? at : full}>${text ?? full}</time>`;
}
