import { html } from "htm/preact";
import type { VNode } from "preact";
import type { ClusterInfo, TableInfo } from "../api/schemas.js";
import type { PageLocation } from "./router.js";
import { fullTimeText } from "./format.js";
import { isConnected, liveTables } from "./liveEvents.js";
import { forgetToken } from "./apiClient.js";
import { switchTheme, theme } from "./theme.js";

/** Returns the shortest name that distinguishes the table from the other tables. */
function tableName(table: TableInfo, all: readonly TableInfo[]): string {
  const isShared = (name: "database" | "schema" | "server"): boolean => all.every((each) => each[name] === table[name]);
  const name = isShared("schema") ? table.table : `${table.schema}.${table.table}`;
  const inDatabase = isShared("database") && isShared("server") ? name : `${table.database} · ${name}`;
  return isShared("server") ? inDatabase : `${table.server} · ${inDatabase}`;
}

const roles: Readonly<Record<ClusterInfo["role"], string>> = {
  seeking: "connecting",
  leader: "leader",
  standby: "standby",
  stopping: "stopping",
};

export function Header({ cluster, location }: { cluster: ClusterInfo | null; location: PageLocation }): VNode {
  const tables = cluster?.tables ?? [];
  const tab = (page: PageLocation["page"], to: string, label: string): VNode =>
    html`<a href=${to} aria-current=${location.page === page ? "page" : undefined}>${label}</a>`;
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
              aria-current=${table.id === location.table ? "true" : undefined}
            >
              <span class=${`dot ${managerState(table)}`}></span>${tableName(table, tables)}
            </a>`,
        )}
      </nav>`
    }
    ${
      location.table !== null &&
      html`<nav class="tabs" aria-label="Views">
        ${tab("overview", `/tables/${location.table}`, "Overview")}
        ${tab("tasks", `/tables/${location.table}/tasks`, "Tasks")}
        ${tab("schedules", `/tables/${location.table}/schedules`, "Schedules")}
        ${tab("errors", `/tables/${location.table}/errors`, "Errors")}
      </nav>`
    }
    <span class="gap"></span>
    ${
      cluster !== null &&
      html`<a class="role" href="/processes" aria-current=${location.page === "processes" ? "page" : undefined}
          >Processes</a
        >
        <span class=${`role ${cluster.role}`} title=${`since ${fullTimeText(cluster.since)}`}>
          ${roles[cluster.role]}
        </span>`
    }
    <${LiveStatus} ids=${location.table === null ? tables.map((table) => table.id) : [location.table]} />
    <button class="quiet" onClick=${forgetToken} title="Remove the token from this browser">Forget token</button>
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

function LiveStatus({ ids }: { ids: readonly string[] }): VNode {
  const live = isConnected.value ? ids.filter((id) => liveTables.value.has(id)).length : 0;
  const isLive = live === ids.length && live > 0;
  const problem = live === 0 ? "not live" : `${ids.length - live} of ${ids.length} not live`;
  return html`<span class=${`live ${isLive ? "on" : "off"}`} role="status">${isLive ? "live" : problem}</span>`;
}

/** Null if it is unknown. */
export function runningNow({ manager, summary, error }: TableInfo): number | null {
  if (manager === null) return summary?.states.WORK.value ?? null;
  return manager.state === "working" && error === null ? manager.running : null;
}

export function managerState({ manager, error }: TableInfo): string {
  if (error !== null || manager?.state === "waiting") return "bad";
  return manager?.state === "working" ? "good" : "idle";
}
