import { html } from "htm/preact";
import type { VNode } from "preact";
import type { Count } from "../../shared/count.js";
import { useState } from "preact/hooks";
import type { Groups } from "../../tasks/queries/groups.js";
import type { HistoryPoint, TableHistory, TableInfo, TableSummary } from "../api/schemas.js";
import { countText, fullTimeText, numberText, rateText, timeText } from "./format.js";
import { runningNow } from "./header.js";
import type { ProcessInfo, Processes } from "../api/schemas.js";
import { OverTime } from "./overTime.js";
import { PauseButton, TableActions } from "./pauses.js";
import { useResource } from "./resource.js";
import { Alert, DataTable, GroupLink, SearchBox, StaleNotice, unknown } from "./parts.js";
import { formatDuration } from "../../shared/formatDuration.js";
import { describeTurn } from "../../shared/openTurn.js";
import { printableLine } from "../../shared/printable.js";
import { taskStates } from "../../shared/taskState.js";

export function Overview(props: { id: string; table: TableInfo | null; query: URLSearchParams }): VNode {
  const { id, table, query } = props;
  const history = useResource<TableHistory>(`/tables/${id}/history`, {
    table: id,
    minIntervalMs: 2_000,
    pollMs: 5_000,
  });
  const points = history.value?.points ?? [];
  const span = history.value?.spanSeconds ?? 5;
  return html`<main id="main" class="overview">
    <h1 class="hidden">Overview</h1>
    <${TableActions} id=${id} table=${table} />
    ${table !== null && notices(table)} ${tiles(table, history.problem === null ? points : [], span)}
    ${table?.summary && html`<${States} id=${id} summary=${table.summary} />`}
    <${OverTime} id=${id} query=${query} history=${history} hasManager=${table === null || table.manager !== null} />
    <${GroupList} id=${id} paused=${table?.summary?.paused} />
  </main>`;
}

function notices({ id, manager, error, summary }: TableInfo): VNode {
  return html`${
    manager?.state === "waiting" &&
    (manager.code === "CONNECTION_RELEASED"
      ? html`<p class="notice">pg-task has left: ${manager.reason}</p>`
      : html`<p class="notice bad">The manager is waiting: ${manager.reason}</p>`)
  }
  ${manager === null && html`<${LeaderNotice} />`}
  ${error !== null && manager?.code !== "CONNECTION_RELEASED" && html`<${Alert} text=${error} />`}
  ${summary?.paused.map(
    ({ group, since, reason }) =>
      html`<div class="notice with-action" key=${group}>
        <p>
          ${group === null ? "The whole table" : html`Group <b>${printableLine(group)}</b>`}${` has been paused since ${fullTimeText(since)}${reason === null ? "" : `: ${printableLine(reason)}`}`}
        </p>
        <${PauseButton} table=${id} group=${group} paused=${summary.paused} />
      </div>`,
  )}
  ${summary?.turns.map(
    (turn) =>
      html`<p class="notice" key=${turn.task}>
        <a href=${`/tables/${id}/tasks/${turn.task}`}>Task ${turn.task}</a> ${printableLine(describeTurn(turn))}.
      </p>`,
  )}
  ${summary?.webhooks.map(
    ({ name, waiting, failures, error: reason, failedAt }) =>
      failures > 0 &&
      html`<p class="notice bad" key=${name}>
        ${`Webhook ${name} has not accepted ${waiting === 1 ? "the end of a task" : `the ends of ${numberText(waiting)} tasks`}`}
        ${reason !== null && `: ${printableLine(reason)}`}${failedAt !== null && ` (last tried ${fullTimeText(failedAt)})`}
      </p>`,
  )}`;
}

const tile = (title: string, value: string | null, more: string, kind = ""): VNode =>
  html`<div class=${`tile ${kind}`} key=${title}>
    <dt>${title}</dt>
    <dd>${value ?? unknown}<small>${more}</small></dd>
  </div>`;

function latencyTile(title: string, name: "waitMs" | "runMs", summary: TableSummary | null): VNode {
  const latency = summary?.[name] ?? null;
  const measured = summary?.measured ?? null;
  if (latency === null || measured === null) return tile(title, null, "");
  const { runs, first, last } = measured;
  const of = `of the last ${runs === 1 ? "run" : `${numberText(runs)} runs`}, ${timeText(first)} to ${timeText(last)}`;
  return tile(title, formatDuration(latency.p50), `95 % within ${formatDuration(latency.p95)}, ${of}`);
}

const perSecond = (
  points: readonly HistoryPoint[],
  span: number,
  value: (point: HistoryPoint) => number | null,
): number | null => {
  const known = points.map(value).filter((each) => each !== null);
  return known.length === 0 ? null : known.reduce((sum, each) => sum + each, 0) / (known.length * span);
};

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
    ${latencyTile("Median wait", "waitMs", summary)} ${latencyTile("Median run", "runMs", summary)}
  </dl>`;
}

function States({ id, summary }: { id: string; summary: TableSummary }): VNode {
  const shares = taskStates.map((state) => summary.states[state].value ?? summary.states[state].least);
  const total = Math.max(
    1,
    shares.reduce((sum, each) => sum + each, 0),
  );
  return html`<section class="panel states" aria-label="Tasks by state">
    <svg class="share" width="100%" height="10" role="presentation" preserveAspectRatio="none" viewBox="0 0 1000 10">
      ${taskStates.map((state, index) => {
        const before = shares.slice(0, index).reduce((sum, each) => sum + each, 0);
        const width = ((shares[index] ?? 0) / total) * 1000;
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
              <span class=${`state s-${state}`}>${state}</span>${" "} ${countText(summary.states[state])}
            </a>
          </li>`,
      )}
      <li class="total">${countText(summary.rows)} rows</li>
    </ul>
    ${!summary.rows.exact && html`<p class="note">${estimateText(summary)}</p>`}
  </section>`;
}

const estimateText = ({ analyzedAt }: TableSummary): string =>
  analyzedAt === null
    ? "≈ is an estimate by the server; – is not known."
    : `≈ is an estimate by the server's statistics of ${timeText(analyzedAt)}; – is not known.`;

function GroupList({ id, paused }: { id: string; paused?: TableSummary["paused"] }): VNode {
  const [text, setText] = useState("");
  const search = new URLSearchParams(text === "" ? {} : { text });
  const groups = useResource<Groups>(`/tables/${id}/groups?${search.toString()}`, {
    table: id,
    minIntervalMs: 2_000,
    pollMs: 10_000,
  });
  const { value } = groups;
  return html`<div class="row">
      <h2>Groups</h2>
      <span class="gap"></span>
      <${SearchBox} placeholder="Part of a group's name" text=${text} find=${setText} />
    </div>
    <${StaleNotice} of=${groups} />
    ${value?.groups.length === 0 && html`<p class="empty">${text === "" ? "No tasks yet." : "No matching groups."}</p>`}
    ${value !== null && value.groups.length > 0 && html`<${GroupTable} id=${id} groups=${value} paused=${paused} />`}`;
}

/** A number in the table of groups. Zeros are faint, others have the colour of a state if one is given. */
const numberCell = (title: string, value: number, text: string, state?: string): VNode =>
  html`<td data-title=${title} class=${value === 0 ? "zero" : state === undefined ? "" : `s-${state}`}>${text}</td>`;

/** A part of the rows does not tell whether there are none. */
const endedCell = (title: string, value: number, complete: boolean, state?: string): VNode =>
  numberCell(title, value, complete ? numberText(value) : value === 0 ? unknown : `≥ ${numberText(value)}`, state);

const waitingCell = (title: string, count: Count): VNode =>
  numberCell(title, count.value ?? 1, countText(count), "PLAN");

function GroupTable({ id, groups, paused }: { id: string; groups: Groups; paused?: TableSummary["paused"] }): VNode {
  const { groups: list, total, newest, newestComplete } = groups;
  return html`<${DataTable}
      class="groups cards"
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
            ${numberCell("Running", group.running, numberText(group.running), "WORK")} ${waitingCell("Due", group.due)}
            ${waitingCell("Waiting", group.waiting)}
            <td data-title="Oldest due">
              ${group.oldestDueMs === null ? "" : formatDuration(Math.max(0, group.oldestDueMs))}
            </td>
            ${endedCell("Done", group.done, newestComplete)}
            ${endedCell("Failed", group.failed, newestComplete, "FAIL")}
            ${endedCell("Other", group.other, newestComplete)}
            <td class="do">
              ${paused !== undefined && html`<${PauseButton} table=${id} group=${group.group} paused=${paused} short=${true} />`}
            </td>
          </tr>`,
      )}
    <//>
    ${total.value !== list.length && html`<p class="note">${numberText(list.length)} of ${countText(total)} groups, the busiest first.</p>`}
    ${!newestComplete && html`<p class="note">Done, failed and other: only the newest ${numberText(newest)} rows were counted.</p>`}`;
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
