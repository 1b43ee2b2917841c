import { html } from "htm/preact";
import type { VNode } from "preact";
import type { Count } from "../../shared/count.js";
import type { ClusterInfo, TableInfo, TableSummary } from "../api/schemas.js";
import { countText, numberText } from "./format.js";
import { managerState, runningNow } from "./header.js";
import { DataTable, SearchBox, tableHead, unknown } from "./parts.js";
import { changedQuery, setQuery } from "./router.js";
import { formatDuration } from "../../shared/formatDuration.js";

const oldestDueText = (summary: TableSummary | null): string =>
  summary === null ? unknown : formatDuration(summary.oldestDueMs ?? 0).replace(/^0 ms$/, "");

const countOrUnknown = (count: Count | undefined): string => (count === undefined ? unknown : countText(count));

/** By title, what the tables are sorted by. */
const sortValues: Readonly<Record<string, (table: TableInfo) => number | string>> = {
  Table: ({ schema, table }) => `${schema}.${table}`,
  Manager: (table) => managerText(table),
  Due: ({ summary }) => summary?.due.value ?? -1,
  "Oldest due": ({ summary }) => summary?.oldestDueMs ?? -1,
  Running: (table) => runningNow(table) ?? -1,
  Done: ({ summary }) => summary?.states.DONE.value ?? -1,
  Failed: ({ summary }) => summary?.states.FAIL.value ?? -1,
  Rows: ({ summary }) => summary?.rows.value ?? -1,
};

const managerText = ({ manager, error }: TableInfo): string =>
  manager?.reason ?? error ?? manager?.state ?? "not in this process";

const fullName = ({ server, database, schema, table }: TableInfo): string =>
  `${schema}.${table} ${database} ${server}`.toLowerCase();

/** With fewer tables, a search is only in the way. */
const fewTables = 6;

export function Tables({ cluster, query }: { cluster: ClusterInfo; query: URLSearchParams }): VNode {
  const text = query.get("text") ?? "";
  const sort = query.get("sort") ?? "";
  const found = cluster.tables.filter((table) => fullName(table).includes(text.toLowerCase()));
  return html`<main id="main">
    <h1>Tables</h1>
    ${
      cluster.tables.length >= fewTables &&
      html`<div class="filters" role="search">
        <${SearchBox}
          placeholder="Part of the name of a table, schema, database or server"
          wide=${true}
          text=${text}
          find=${(to: string) => setQuery(changedQuery(query, { text: to }))}
        />
        <small role="status">${numberText(found.length)} of ${numberText(cluster.tables.length)} tables</small>
      </div>`
    }
    <${DataTable}
      class="overall cards"
      caption="Tables"
      titles=${Object.keys(sortValues)}
      sort=${{ sort, texts: ["Table", "Manager"], choose: (to: string) => setQuery(changedQuery(query, { sort: to })) }}
    >
      ${sortTables(found, sort).map(tableRow)}
    <//>
    ${found.length === 0 && html`<p class="empty">No matching tables.</p>`}
  </main>`;
}

function sortTables(tables: readonly TableInfo[], sort: string): readonly TableInfo[] {
  const value = sortValues[sort.replace(/^-/, "")];
  if (value === undefined) return tables;
  const sign = sort.startsWith("-") ? -1 : 1;
  return tables.toSorted((one, other) => {
    const [a, b] = [value(one), value(other)];
    return sign * (typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b)) : a - b);
  });
}

function tableRow(table: TableInfo): VNode {
  const { summary } = table;
  const running = runningNow(table);
  const { DONE: done, FAIL: failed } = summary?.states ?? {};
  return html`<tr key=${table.id}>
    ${tableHead(table)}
    <td class="reason" data-title="Manager">
      <span class=${`dot ${managerState(table)}`}></span>${managerText(table)}
    </td>
    <td data-title="Due">${countOrUnknown(summary?.due)}</td>
    <td data-title="Oldest due">${oldestDueText(summary)}</td>
    <td data-title="Running">${running === null ? unknown : numberText(running)}</td>
    <td data-title="Done">${countOrUnknown(done)}</td>
    <td data-title="Failed" class=${(failed?.value ?? 0) > 0 ? "s-FAIL" : ""}>${countOrUnknown(failed)}</td>
    <td data-title="Rows">${countOrUnknown(summary?.rows)}</td>
  </tr>`;
}
