import { html } from "htm/preact";
import type { VNode } from "preact";

/**
 * The header row of a table.
 *
 * @param props.hidden title of an additional last column, shown only to screen readers
 */
export function TableHead({ titles, hidden }: { titles: readonly string[]; hidden?: string }): VNode {
  return html`<thead>
    <tr>
      ${titles.map((title) => html`<th scope="col" key=${title}>${title}</th>`)}
      ${hidden !== undefined && html`<th scope="col"><span class="hidden">${hidden}</span></th>`}
    </tr>
  </thead>`;
}
