import { html } from "htm/preact";
import type { VNode } from "preact";
import type { Cluster, Summary } from "../api/schemas.js";
import { count, pageDuration, number } from "./format.js";
import { managerState, runningNow } from "./header.js";
import { TableHead } from "./tableHead.js";

const unknown = "–";

const oldest = (summary: Summary | null): string =>
  summary === null ? unknown : pageDuration(summary.oldestDueMs ?? 0).replace(/^0 ms$/, "");

/** All tables at a glance. */
export function Tables({ cluster }: { cluster: Cluster }): VNode {
  return html`<main>
    <h1>Tables</h1>
    <div class="panel scroll">
      <table class="overall">
        <${TableHead}
          titles=${["Table", "Manager", "Due", "Oldest", "Running", "Done", "Failed", "Rows"]}
        />
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
                >${table.error ?? manager?.reason ?? manager?.state ?? "not here"}
              </td>
              <td>${summary === null ? unknown : count(summary.due)}</td>
              <td>${oldest(summary)}</td>
              <td>${running === null ? unknown : number(running)}</td>
              <td>${summary === null ? unknown : count(summary.states.DONE)}</td>
              <td class=${(summary?.states.FAIL.value ?? 0) > 0 ? "t-FAIL" : ""}>
                ${summary === null ? unknown : count(summary.states.FAIL)}
              </td>
              <td>${summary === null ? unknown : count(summary.rows)}</td>
            </tr>`;
          })}
        </tbody>
      </table>
    </div>
  </main>`;
}
