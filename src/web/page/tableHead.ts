import { html } from "htm/preact";
import type { VNode } from "preact";

/** A table's titles; one that is only for those who hear the page is hidden. */
export function TableHead({
  titles,
  hidden,
}: {
  titles: readonly string[];
  hidden?: string;
}): VNode {
  return html`<thead>
    <tr>
      ${titles.map((title) => html`<th scope="col" key=${title}>${title}</th>`)}
      ${hidden !== undefined && html`<th scope="col"><span class="hidden">${hidden}</span></th>`}
    </tr>
  </thead>`;
}
