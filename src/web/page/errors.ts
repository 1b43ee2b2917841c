import { html } from "htm/preact";
import type { VNode } from "preact";
import type { ErrorGroup, ErrorGroups } from "../../tasks/queries/history.js";
import { numberText } from "./format.js";
import { useResource } from "./resource.js";
import { DataTable, StaleNotice, Time, unknown } from "./parts.js";
import { printableLine } from "../../shared/printable.js";

const limit = 100;
/** In characters. */
const maxSearched = 200;

export function ErrorsView({ id }: { id: string }): VNode {
  // The server scans rows for the answer and keeps it for ten seconds.
  const resource = useResource<ErrorGroups>(`/tables/${id}/errors?limit=${limit}`, {
    table: id,
    minIntervalMs: 10_000,
    pollMs: 60_000,
  });
  const { value, busy } = resource;
  return html`<main id="main" class="errors-view" aria-busy=${busy}>
    <h1>Errors</h1>
    <${StaleNotice} of=${resource} />
    ${value !== null && (value.errors.length === 0 ? html`<p class="empty panel">No task has an error.</p>` : list(id, value))}
    ${value !== null && html`<p class="note">${extentText(value)}</p>`}
  </main>`;
}

function list(id: string, { errors }: ErrorGroups): VNode {
  return html`<${DataTable}
    class="error-groups"
    caption="Errors by their first lines, the most frequent first"
    titles=${["Tasks", "Error", "Last seen", "Last task"]}
  >
    ${errors.map(
      ({ error, count, lastSeen, lastId }: ErrorGroup) =>
        html`<tr key=${error}>
          <td>${numberText(count)}</td>
          <th scope="row" class="sql">
            ${error.trim() === "" ? html`<i>empty</i>` : html`<a href=${`/tables/${id}/tasks?text=${encodeURIComponent(searchText(error))}`}>${printableLine(error)}</a>`}
          </th>
          <td>${lastSeen === null ? unknown : html`<${Time} at=${lastSeen} />`}</td>
          <td><a href=${`/tables/${id}/tasks/${lastId}`}>${lastId}</a></td>
        </tr>`,
    )}
  <//>`;
}

/** A surrogate pair is not cut in two. */
const searchText = (error: string): string => error.slice(0, maxSearched).replace(/[\ud800-\udbff]$/, "");

function extentText({ scanned, complete, more }: ErrorGroups): string {
  const rows = complete
    ? `All ${numberText(scanned)} rows were read.`
    : `The newest ${numberText(scanned)} rows were read; the table has more.`;
  return more ? `${rows} Only the ${limit} most frequent errors are shown.` : rows;
}
