import { html } from "htm/preact";
import type { VNode } from "preact";
import { fullTimeText } from "./format.js";
import type { Resource } from "./resource.js";

/** Shows why the last request failed and how old the shown data is. */
export function StaleNotice({
  of: { problem, value, at },
  top = false,
}: {
  of: Resource<unknown>;
  top?: boolean;
}): VNode | null {
  if (problem === null) return null;
  const shown = value === null ? "" : `. Showing data from ${fullTimeText(new Date(at).toISOString())}.`;
  return html`<p class=${top ? "notice bad top" : "notice bad"} role="alert">${problem}${shown}</p>`;
}
