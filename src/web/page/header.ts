import { html } from "htm/preact";
import type { VNode } from "preact";
import type { Cluster } from "../api/schemas.js";
import type { PageLocation } from "./router.js";
import { connected, live } from "./liveEvents.js";
import { switchTheme, theme } from "./theme.js";

/** How a table is called where there are several. */
export function tableName(table: Cluster["tables"][number], all: Cluster["tables"]): string {
  const same = (name: "database" | "schema" | "server"): boolean =>
    all.every((each) => each[name] === table[name]);
  const name = same("schema") ? table.table : `${table.schema}.${table.table}`;
  const inDatabase = same("database") && same("server") ? name : `${table.database} · ${name}`;
  return same("server") ? inDatabase : `${table.server} · ${inDatabase}`;
}

const roles: Readonly<Record<Cluster["role"], string>> = {
  seeking: "seeks the server",
  leader: "leader",
  standby: "standby",
  stopping: "stopping",
};

export function Header({
  cluster,
  place,
}: {
  cluster: Cluster | null;
  place: PageLocation;
}): VNode {
  const tables = cluster?.tables ?? [];
  const tab = (page: PageLocation["page"], to: string, words: string): VNode =>
    html`<a href=${to} aria-current=${place.page === page ? "page" : undefined}>${words}</a>`;
  return html`<header class="bar">
    <a class="mark" href="/"><img src="/page/icon.svg" alt="" width="20" height="20" />pg-task</a>
    ${
      tables.length > 1 &&
      html`<nav class="tables" aria-label="Tables">
        ${tables.map(
          (table) =>
            html`<a
              key=${table.id}
              href=${`/tables/${table.id}`}
              aria-current=${table.id === place.table ? "true" : undefined}
            >
              <span class=${`dot ${managerState(table)}`}></span>${tableName(table, tables)}
            </a>`,
        )}
      </nav>`
    }
    ${
      place.table !== null &&
      html`<nav class="tabs" aria-label="Views">
        ${tab("overview", `/tables/${place.table}`, "Overview")}
        ${tab("tasks", `/tables/${place.table}/tasks`, "Tasks")}
      </nav>`
    }
    <span class="gap"></span>
    ${
      cluster !== null &&
      html`<span class=${`role ${cluster.role}`} title=${`since ${cluster.since}`}>
        ${roles[cluster.role]}
      </span>`
    }
    <${Liveness} ids=${place.table === null ? tables.map((table) => table.id) : [place.table]} />
    <button
      class="quiet"
      onClick=${switchTheme}
      aria-label=${theme.value === "dark" ? "Switch to light" : "Switch to dark"}
      title=${theme.value === "dark" ? "Switch to light" : "Switch to dark"}
    >
      ${theme.value === "dark" ? "☀" : "☾"}
    </button>
  </header>`;
}

/** Whether changes to these tables are heard of now. */
function Liveness({ ids }: { ids: readonly string[] }): VNode {
  const heard = connected.value ? ids.filter((id) => live.value.has(id)).length : 0;
  const all = heard === ids.length && heard > 0;
  const some = heard === 0 ? "not live" : `${ids.length - heard} of ${ids.length} not live`;
  return html`<span class=${`live ${all ? "on" : "off"}`} role="status"
    >${all ? "live" : some}</span
  >`;
}

/** How many tasks run in a table; null where that is not known now. */
export function runningNow({ manager, summary, error }: Cluster["tables"][number]): number | null {
  if (manager === null) return summary?.states.WORK.value ?? null;
  return manager.state === "working" && error === null ? manager.running : null;
}

/** What the dot beside a table says. */
export function managerState({ manager, error }: Cluster["tables"][number]): string {
  if (error !== null || manager?.state === "waiting") return "bad";
  return manager?.state === "working" ? "good" : "idle";
}
