import { html } from "htm/preact";
import type { VNode } from "preact";
import type { ErrorGroup, ErrorGroups } from "../../tasks/queries/history.js";
import { numberText, timeText } from "./format.js";
import { useResource } from "./resource.js";
import { DataTable, StaleNotice, StateBadge, Time, unknown } from "./parts.js";
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
  const [gone, failed] = [true, false].map(
    (isGone) => value?.errors.filter(({ state }) => (state === "GONE") === isGone) ?? [],
  );
  return html`<main id="main" class="errors-view" aria-busy=${busy}>
    <h1>Errors</h1>
    <${StaleNotice} of=${resource} />
    ${value?.errors.length === 0 && html`<p class="empty panel">No task has an error.</p>`}
    ${failed !== undefined && failed.length > 0 && html`<${List} id=${id} title="Failures" errors=${failed} />`}
    ${gone !== undefined && gone.length > 0 && html`<${List} id=${id} title="Expired without running" errors=${gone} />`}
    ${value !== null && html`<p class="note">${extentText(value)}</p>`}
  </main>`;
}

function List({ id, title, errors }: { id: string; title: string; errors: readonly ErrorGroup[] }): VNode {
  return html`<section>
    <h2>${title}</h2>
    <${DataTable}
      class="error-groups cards"
      caption=${`${title} by the first lines of their errors, the most frequent first`}
      titles=${["Tasks", "State", "Error", "Ended", "Last task"]}
    >
      ${errors.map((group) => errorRow(id, group))}
    <//>
  </section>`;
}

function errorRow(id: string, { error, state, role, count, firstSeen, lastSeen, lastId }: ErrorGroup): VNode {
  const query = new URLSearchParams({ state, text: searchText(error), ...(role === null ? {} : { role }) });
  return html`<tr key=${`${state} ${role} ${error}`}>
    <td data-title="Tasks">${numberText(count)}</td>
    <td data-title="State">
      <${StateBadge} task=${{ state, ready: null }} />${role !== null && html` <small>${printableLine(role)}</small>`}
    </td>
    <th scope="row" class="sql">
      ${error.trim() === "" ? html`<i>empty</i>` : html`<a href=${`/tables/${id}/tasks?${query.toString()}`} title=${printableLine(error)}>${printableLine(error.replace(/^ERROR:\s+/, ""))}</a>`}
    </th>
    <td class="period" data-title="Ended">
      ${firstSeen !== null && firstSeen !== lastSeen && html`<${Time} at=${firstSeen} text=${timeText(firstSeen)} /> –${" "}`}
      ${lastSeen === null ? unknown : html`<${Time} at=${lastSeen} text=${timeText(lastSeen)} />`}
    </td>
    <td data-title="Last task"><a href=${`/tables/${id}/tasks/${lastId}`}>${lastId}</a></td>
  </tr>`;
}

/** A surrogate pair is not cut in two. */
const searchText = (error: string): string => error.slice(0, maxSearched).replace(/[\ud800-\udbff]$/, "");

function extentText({ scanned, complete, more }: ErrorGroups): string {
  const rows = complete
    ? `All ${numberText(scanned)} rows were read.`
    : `The newest ${numberText(scanned)} rows were read; the table has more.`;
  return more ? `${rows} Only the ${limit} most frequent errors are shown.` : rows;
}
