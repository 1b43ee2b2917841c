import { html } from "htm/preact";
import type { VNode } from "preact";
import type { Count } from "../../tasks/queries/counts.js";
import type { ClusterInfo, TableSummary } from "../api/schemas.js";
import { countText, numberText } from "./format.js";
import { managerState, runningNow } from "./header.js";
import { DataTable, unknown } from "./parts.js";
import { formatDuration } from "../../shared/formatDuration.js";

const oldestDueText = (summary: TableSummary | null): string =>
  summary === null ? unknown : formatDuration(summary.oldestDueMs ?? 0).replace(/^0 ms$/, "");

const countOrUnknown = (count: Count | undefined): string => (count === undefined ? unknown : countText(count));

export function Tables({ cluster }: { cluster: ClusterInfo }): VNode {
  return html`<main id="main">
    <h1>Tables</h1>
    <${DataTable}
      class="overall"
      titles=${["Table", "Manager", "Due", "Oldest due", "Running", "Done", "Failed", "Rows"]}
    >
      ${cluster.tables.map((table) => {
        const { summary, manager } = table;
        const running = runningNow(table);
        const { DONE: done, FAIL: failed } = summary?.states ?? {};
        return html`<tr key=${table.id}>
          <th scope="row">
            <a href=${`/tables/${table.id}`}>${table.schema}.${table.table}</a>
            <small>${table.database} · ${table.server}</small>
          </th>
          <td>
            <span class=${`dot ${managerState(table)}`}></span
            >${manager?.reason ?? table.error ?? manager?.state ?? "not in this process"}
          </td>
          <td>${countOrUnknown(summary?.due)}</td>
          <td>${oldestDueText(summary)}</td>
          <td>${running === null ? unknown : numberText(running)}</td>
          <td>${countOrUnknown(done)}</td>
          <td class=${(failed?.value ?? 0) > 0 ? "s-FAIL" : ""}>${countOrUnknown(failed)}</td>
          <td>${countOrUnknown(summary?.rows)}</td>
        </tr>`;
      })}
    <//>
  </main>`;
}
