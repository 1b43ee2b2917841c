import { html } from "htm/preact";
import type { VNode } from "preact";
import type { Groups } from "../../tasks/queries/groups.js";
import type { HistoryPoint, TableHistory, TableInfo, TableSummary } from "../api/schemas.js";
import { countText, countOrFewText, fullTimeText, numberText, rateText } from "./format.js";
import { runningNow } from "./header.js";
import type { ProcessInfo, Processes } from "../api/schemas.js";
import { OverTime } from "./overTime.js";
import { PauseButton, TableActions } from "./pauses.js";
import { useResource } from "./resource.js";
import { Alert, DataTable, GroupLink, StaleNotice, unknown } from "./parts.js";
import { formatDuration } from "../../shared/formatDuration.js";
import { printableLine } from "../../shared/printable.js";
import { taskStates } from "../../shared/taskState.js";

export function Overview({ id, table }: { id: string; table: TableInfo | null }): VNode {
  const history = useResource<TableHistory>(`/tables/${id}/history`, {
    table: id,
    minIntervalMs: 2_000,
    pollMs: 5_000,
  });
  const groups = useResource<Groups>(`/tables/${id}/groups`, { table: id, minIntervalMs: 2_000 });
  const points = history.value?.points ?? [];
  const span = history.value?.spanSeconds ?? 5;
  return html`<main id="main" class="overview">
    <h1 class="hidden">Overview</h1>
    <${TableActions} id=${id} table=${table} />
    ${table !== null && notices(table)} ${tiles(table, history.problem === null ? points : [], span)}
    ${table?.summary && html`<${States} id=${id} summary=${table.summary} />`}
    <${OverTime} id=${id} history=${history} hasManager=${table === null || table.manager !== null} />
    <h2>Groups</h2>
    <${StaleNotice} of=${groups} />
    ${groups.value !== null && html`<${GroupTable} id=${id} groups=${groups.value} paused=${table?.summary?.paused} />`}
  </main>`;
}

function notices({ id, manager, error, summary }: TableInfo): VNode {
  return html`${
    manager?.state === "waiting" && html`<p class="notice bad">The manager is waiting: ${manager.reason}</p>`
  }
  ${manager === null && html`<${LeaderNotice} />`} ${error !== null && html`<${Alert} text=${error} />`}
  ${summary?.paused.map(
    ({ group, since, reason }) =>
      html`<div class="notice with-action" key=${group}>
        <p>
          ${group === null ? "The whole table" : html`Group <b>${printableLine(group)}</b>`}${` has been paused since ${fullTimeText(since)}${reason === null ? "" : `: ${printableLine(reason)}`}`}
        </p>
        <${PauseButton} table=${id} group=${group} paused=${summary.paused} />
      </div>`,
  )}`;
}

const tile = (title: string, value: string | null, more: string, kind = ""): VNode =>
  html`<div class=${`tile ${kind}`} key=${title}>
    <dt>${title}</dt>
    <dd>${value ?? unknown}<small>${more}</small></dd>
  </div>`;

const latencyTile = (title: string, latency: TableSummary["runMs"]): VNode =>
  latency === null
    ? tile(title, null, "")
    : tile(title, formatDuration(latency.p50), `95 % within ${formatDuration(latency.p95)}`);

const perSecond = (
  points: readonly HistoryPoint[],
  span: number,
  value: (point: HistoryPoint) => number,
): number | null =>
  points.length === 0 ? null : points.reduce((sum, point) => sum + value(point), 0) / (points.length * span);

const perSecondText = (value: number | null): string | null => (value === null ? null : `${rateText(value)}/s`);

function oldestText(summary: TableSummary | null): string {
  if (summary === null) return "unknown";
  return summary.oldestDueMs === null ? "nothing due" : `oldest ${formatDuration(summary.oldestDueMs)}`;
}

function sessionsText(manager: TableInfo["manager"], running: number | null): string {
  if (running === null) return "unknown";
  if (manager === null) return "";
  return manager.sessions === 1 ? "1 session" : `${manager.sessions} sessions`;
}

function tiles(table: TableInfo | null, points: readonly HistoryPoint[], span: number): VNode {
  const summary = table?.summary ?? null;
  const manager = table?.manager ?? null;
  const minute = points.slice(-60 / span - 1, -1);
  const counted = manager === null ? [] : minute;
  const done = perSecond(counted, span, ({ done: value }) => value);
  const failed = perSecond(counted, span, ({ failed: value }) => value);
  const running = table === null ? null : runningNow(table);
  return html`<dl class="tiles">
    ${tile("Due", summary === null ? null : countText(summary.due), oldestText(summary))}
    ${tile("Running", running === null ? null : numberText(running), sessionsText(manager, running))}
    ${tile("Finished", perSecondText(done), "last minute")}
    ${tile("Failed", perSecondText(failed), "last minute", (failed ?? 0) > 0 ? "alarm" : "")}
    ${latencyTile("Median wait", summary?.waitMs ?? null)} ${latencyTile("Median run", summary?.runMs ?? null)}
  </dl>`;
}

function States({ id, summary }: { id: string; summary: TableSummary }): VNode {
  const total = Math.max(
    1,
    taskStates.reduce((sum, state) => sum + summary.states[state].value, 0),
  );
  return html`<section class="panel states" aria-label="Tasks by state">
    <svg class="share" width="100%" height="10" role="presentation" preserveAspectRatio="none" viewBox="0 0 1000 10">
      ${taskStates.map((state, index) => {
        const before = taskStates.slice(0, index).reduce((sum, each) => sum + summary.states[each].value, 0);
        const width = (summary.states[state].value / total) * 1000;
        return html`<rect
          key=${state}
          class=${`s-${state}`}
          x=${(before / total) * 1000}
          width=${width}
          height="10"
        />`;
      })}
    </svg>
    <ul>
      ${taskStates.map(
        (state) =>
          html`<li key=${state}>
            <a href=${`/tables/${id}/tasks?state=${state}`}>
              <span class=${`state s-${state}`}>${state}</span>${" "} ${countOrFewText(summary.states[state])}
            </a>
          </li>`,
      )}
      <li class="total">${countText(summary.rows)} rows</li>
    </ul>
  </section>`;
}

/** A number in the table of groups. Zeros are faint, others have the colour of a state if one is given. */
const numberCell = (value: number, text: string, state?: string): VNode =>
  html`<td class=${value === 0 ? "zero" : state === undefined ? "" : `s-${state}`}>${text}</td>`;

function GroupTable({ id, groups, paused }: { id: string; groups: Groups; paused?: TableSummary["paused"] }): VNode {
  const { groups: list, newest, newestComplete, complete } = groups;
  if (list.length === 0) return html`<p class="empty">No tasks yet.</p>`;
  const waitingCell = (value: number): VNode =>
    numberCell(value, countText({ value, exact: complete || value === 0 }), "PLAN");
  return html`<${DataTable}
      class="groups"
      caption="Groups"
      titles=${["Group", "Running", "Due", "Waiting", "Oldest due", "Done", "Failed", "Other"]}
      hidden="Actions"
    >
      ${list.map(
        (group) =>
          html`<tr key=${group.group}>
            <th scope="row">
              <${GroupLink} table=${id} group=${group.group} />
              ${group.paused && html` <span class="tag">paused</span>`}
              ${group.gapMs > 0 && html` <span class="tag">gap ${formatDuration(group.gapMs)}</span>`}
            </th>
            ${numberCell(group.running, numberText(group.running), "WORK")} ${waitingCell(group.due)}
            ${waitingCell(group.waiting)}
            <td>${group.oldestDueMs === null ? "" : formatDuration(Math.max(0, group.oldestDueMs))}</td>
            ${numberCell(group.done, numberText(group.done))}
            ${numberCell(group.failed, numberText(group.failed), "FAIL")}
            ${numberCell(group.other, numberText(group.other))}
            <td class="do">
              ${paused !== undefined && html`<${PauseButton} table=${id} group=${group.group} paused=${paused} short=${true} />`}
            </td>
          </tr>`,
      )}
    <//>
    ${!complete && html`<p class="note">Due and waiting are estimates. Groups with few waiting tasks may be missing.</p>`}
    ${!newestComplete && html`<p class="note">Done, failed and other count the newest ${numberText(newest)} rows.</p>`}`;
}

function processText({ pid, address, since }: ProcessInfo): string {
  const place = address === null ? "" : ` at ${address}`;
  return `backend ${pid}${place}${since === null ? "" : `, connected since ${fullTimeText(since)}`}`;
}

/** Says in the page of a standby which process leads, because only the leader knows rates and charts. */
function LeaderNotice(): VNode {
  const { value, problem } = useResource<Processes>("/processes", { minIntervalMs: 5_000, pollMs: 10_000 });
  return html`<p class="notice">
    This process runs no manager for the table, so only the leader can show its rates, its sessions and the last hour.
    ${" "}${problem === null ? value !== null && leaderText(value) : problem} <a href="/processes">Processes</a>
  </p>`;
}

function leaderText({ leader, error }: Processes): string {
  if (error !== null) return `Which process leads is unknown: ${error}.`;
  return leader === null ? "No process leads now." : `The leader is ${processText(leader)}.`;
}
