import { html } from "htm/preact";
import type { VNode } from "preact";
import type { ClusterInfo, TableSummary } from "../api/schemas.js";
import { countText, numberText } from "./format.js";
import { managerState, runningNow } from "./header.js";
import { TableHead } from "./tableHead.js";
import { formatDuration } from "../../shared/formatDuration.js";

const unknown = "–";

const oldestDueText = (summary: TableSummary | null): string =>
  summary === null ? unknown : formatDuration(summary.oldestDueMs ?? 0).replace(/^0 ms$/, "");

/** Shows all tables with their key figures. */
export function Tables({ cluster }: { cluster: ClusterInfo }): VNode {
  return html`<main id="main">
    <h1>Tables</h1>
    <div class="panel scroll">
      <table class="overall">
        <${TableHead} titles=${["Table", "Manager", "Due", "Oldest due", "Running", "Done", "Failed", "Rows"]} />
        <tbody>
          ${cluster.tables.map((table) => {
            const { summary, manager } = table;
            const running = runningNow(table);
            return html`<tr key=${table.id}>
              <th scope="row">
                <a href=${`/tables/${table.id}`}>${table.schema}.${table.table}</a>
                <small>${table.database} · ${table.server}</small>
              </th>
              <td>
                <span class=${`dot ${managerState(table)}`}></span
                >${manager?.reason ?? table.error ?? manager?.state ?? "not in this process"}
              </td>
              <td>${summary === null ? unknown : countText(summary.due)}</td>
              <td>${oldestDueText(summary)}</td>
              <td>${running === null ? unknown : numberText(running)}</td>
              <td>${summary === null ? unknown : countText(summary.states.DONE)}</td>
              <td class=${(summary?.states.FAIL.value ?? 0) > 0 ? "t-FAIL" : ""}>
                ${summary === null ? unknown : countText(summary.states.FAIL)}
              </td>
              <td>${summary === null ? unknown : countText(summary.rows)}</td>
            </tr>`;
          })}
        </tbody>
      </table>
    </div>
  </main>`;
}
