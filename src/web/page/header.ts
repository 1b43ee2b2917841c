import { html } from "htm/preact";
import type { VNode } from "preact";
import type { ClusterInfo, TableInfo } from "../api/schemas.js";
import { navigate, type PageLocation } from "./router.js";
import { fullTimeText, numberText } from "./format.js";
import { isConnected, liveTables } from "./liveEvents.js";
import { forgetToken, loggedIn } from "./apiClient.js";
import { printableLine } from "../../shared/printable.js";
import { switchTheme, theme } from "./theme.js";

/** Returns the shortest name that distinguishes the table from the other tables. */
function tableName(table: TableInfo, all: readonly TableInfo[]): string {
  const isShared = (name: "database" | "schema" | "server"): boolean => all.every((each) => each[name] === table[name]);
  const name = isShared("schema") ? table.table : `${table.schema}.${table.table}`;
  const inDatabase = isShared("database") && isShared("server") ? name : `${table.database} · ${name}`;
  return isShared("server") ? inDatabase : `${table.server} · ${inDatabase}`;
}

const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]")?.href ?? "";

/** With more tables, the header would need several lines. */
const maxLinks = 6;

const roles: Readonly<Record<ClusterInfo["role"], string>> = {
  seeking: "connecting",
  leader: "leader",
  standby: "standby",
  stopping: "stopping",
};

/** The table whose tabs were shown last. */
let lastTable: string | null = null;

/** The tabs stay in the view of the processes, which belongs to no table. */
const tableBefore = (tables: readonly TableInfo[]): string | null =>
  lastTable ?? (tables.length === 1 ? (tables[0]?.id ?? null) : null);

export function Header({ cluster, location }: { cluster: ClusterInfo | null; location: PageLocation }): VNode {
  const tables = cluster?.tables ?? [];
  const shown = location.table ?? (location.page === "processes" ? tableBefore(tables) : null);
  lastTable = shown;
  const tab = (page: PageLocation["page"], to: string, label: string): VNode =>
    html`<a href=${to} aria-current=${location.page === page ? "page" : undefined}>${label}</a>`;
  return html`<header class="bar">
    <a class="mark" href="/"><img src=${icon} alt="" width="20" height="20" />pg-task</a>
    ${tables.length > maxLinks && html`<${TableChoice} tables=${tables} current=${location.table} />`}
    ${
      tables.length > 1 &&
      tables.length <= maxLinks &&
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
      shown !== null &&
      html`<nav class="tabs" aria-label="Views">
        ${tab("overview", `/tables/${shown}`, "Overview")} ${tab("tasks", `/tables/${shown}/tasks`, "Tasks")}
        ${tab("schedules", `/tables/${shown}/schedules`, "Schedules")}
        ${tab("errors", `/tables/${shown}/errors`, "Errors")}
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
    ${
      loggedIn.value === null
        ? html`<button class="quiet" onClick=${forgetToken} title="Remove the token from this browser">
            Forget token
          </button>`
        : html`<span class="role" title="Logged in by your proxy">${printableLine(loggedIn.value)}</span>`
    }
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

/** Any browser finds the table while its name is being typed. */
function TableChoice({ tables, current }: { tables: readonly TableInfo[]; current: string | null }): VNode {
  const names = tables.map((table) => [printableLine(tableName(table, tables)), table.id] as const);
  const choose = ({ target }: Event): void => {
    if (!(target instanceof HTMLInputElement)) return;
    const id = names.find(([name]) => name === target.value)?.[1];
    if (id === undefined) return;
    target.value = "";
    target.blur();
    navigate(`/tables/${id}`);
  };
  const name = names.find(([, id]) => id === current)?.[0];
  return html`<nav class="tables" aria-label="Tables">
    <a href="/">All ${numberText(tables.length)} tables</a>
    ${name !== undefined && html`<a href=${`/tables/${current}`} aria-current="true">${name}</a>`}
    <input type="search" list="table-names" placeholder="Go to table" aria-label="Go to a table" onInput=${choose} />
    <datalist id="table-names">${names.map(([each, id]) => html`<option key=${id} value=${each}></option>`)}</datalist>
  </nav>`;
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
  const isServed = manager.state === "working" || manager.state === "sleeping";
  return isServed && error === null ? manager.running : null;
}

export function managerState({ manager, error }: TableInfo): string {
  if (manager?.code === "CONNECTION_RELEASED") return "idle";
  if (error !== null || manager?.state === "waiting") return "bad";
  return manager?.state === "working" || manager?.state === "sleeping" ? "good" : "idle";
}
