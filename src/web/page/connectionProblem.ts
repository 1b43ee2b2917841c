import { html } from "htm/preact";
import type { VNode } from "preact";
import { moment } from "./format.js";
import type { Resource } from "./resource.js";

/** Why something was not answered, and of when what is shown instead is. */
export function Trouble({
  of: { problem, value, at },
  top = false,
}: {
  of: Resource<unknown>;
  top?: boolean;
}): VNode | null {
  if (problem === null) return null;
  const old =
    value === null ? "" : `. What is shown is how it was at ${moment(new Date(at).toISOString())}.`;
  return html`<p class=${top ? "notice bad top" : "notice bad"} role="alert">${problem}${old}</p>`;
}
