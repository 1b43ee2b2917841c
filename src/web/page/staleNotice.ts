import { html } from "htm/preact";
import type { VNode } from "preact";
import { fullTimeText } from "./format.js";
import type { Resource } from "./resource.js";

/** Shows why the last request failed, how old the shown data is, and whether the page tries again. */
export function StaleNotice({
  of: { problem, retries, value, at },
  top = false,
}: {
  of: Resource<unknown>;
  top?: boolean;
}): VNode | null {
  if (problem === null) return null;
  const parts = [
    problem,
    ...(value === null ? [] : [`Showing data from ${fullTimeText(new Date(at).toISOString())}`]),
    ...(retries ? ["This page keeps trying"] : []),
  ];
  const text = parts.length === 1 ? problem : `${parts.join(". ")}.`;
  return html`<p class=${top ? "notice bad top" : "notice bad"} role="alert">${text}</p>`;
}
