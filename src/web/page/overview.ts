import { html } from "htm/preact";
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import type { Groups, History, Point, Summary, Table, TaskState } from "../api/schemas.js";
import { count, countOrFew, pageDuration, moment, number, rate } from "./format.js";
import { runningNow } from "./header.js";
import { Plot } from "./plot.js";
import { useResource } from "./resource.js";
import { TableHead } from "./tableHead.js";
import { Trouble } from "./connectionProblem.js";

const order: readonly TaskState[] = ["PLAN", "TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"];
const spans = [
  { words: "10 min", seconds: 600 },
  { words: "1 hour", seconds: 3600 },
] as const;

/** How a table is doing. */
export function Overview({ id, table }: { id: string; table: Table | null }): VNode {
  const history = useResource<History>(`/tables/${id}/history`, {
    table: id,
    leastMs: 2_000,
    everyMs: 5_000,
  });
  const groups = useResource<Groups>(`/tables/${id}/groups`, { table: id, leastMs: 2_000 });
  const [seconds, setSeconds] = useState<number>(spans[0].seconds);
  const points = history.value?.points ?? [];
  const span = history.value?.spanSeconds ?? 5;
  // The last one is not over yet.
  const shown = points.slice(-seconds / span - 1, -1);
  return html`<main class="overview">
    <h1 class="hidden">Overview</h1>
    ${
      table?.manager?.state === "waiting" &&
      html`<p class="notice bad">The manager waits: ${table.manager.reason}</p>`
    }
    ${
      table !== null &&
      table.manager === null &&
      html`<p class="notice">
        No manager works here: rates and times over time are the leader's to tell. What the table
        itself says is shown.
      </p>`
    }
    ${(table?.error ?? null) !== null && html`<p class="notice bad" role="alert">${table?.error}</p>`}
    ${table?.summary?.paused.map(
      ({ group, since, reason }) =>
        html`<p class="notice" key=${group}>
          ${group === null ? "The whole table" : html`Group <b>${group}</b>`}${` is paused since ${moment(since)}${reason === null ? "" : `: ${reason}`}`}
        </p>`,
    )}
    ${tiles(table, history.problem === null ? points : [], span)}
    ${(table?.summary ?? null) !== null && html`<${States} id=${id} summary=${table?.summary} />`}
    <div class="row">
      <h2>Over time</h2>
      <span class="choice" role="group" aria-label="Time span">
        ${spans.map(
          ({ words, seconds: each }) =>
            html`<button
              key=${words}
              aria-pressed=${each === seconds}
              onClick=${() => setSeconds(each)}
            >
              ${words}
            </button>`,
        )}
      </span>
    </div>
    <${Trouble} of=${history} />
    ${plots(shown, span)}
    <h2>Groups</h2>
    <${Trouble} of=${groups} />
    ${groups.value !== null && html`<${GroupTable} id=${id} groups=${groups.value} />`}
  </main>`;
}

const tile = (title: string, value: string | null, more: string, kind = ""): VNode =>
  html`<div class=${`tile ${kind}`} key=${title}>
    <dt>${title}</dt>
    <dd>${value ?? "–"}<small>${more}</small></dd>
  </div>`;

const latency = (value: Summary["runMs"]): string | null =>
  value === null ? null : pageDuration(value.p50);

const p95 = (value: Summary["runMs"]): string =>
  value === null ? "" : `95 % in ${pageDuration(value.p95)}`;

function oldest(summary: Summary | null): string {
  if (summary === null) return "not known";
  return summary.oldestDueMs === null
    ? "nothing waits"
    : `oldest ${pageDuration(summary.oldestDueMs)}`;
}

function sessionsOf(manager: Table["manager"], running: number | null): string {
  if (running === null) return "not known";
  if (manager === null) return "";
  return manager.sessions === 1 ? "1 session" : `${manager.sessions} sessions`;
}

function tiles(table: Table | null, points: readonly Point[], span: number): VNode {
  const summary = table?.summary ?? null;
  const manager = table?.manager ?? null;
  const minute = points.slice(-60 / span - 1, -1);
  const perSecond = (name: "done" | "failed"): number | null =>
    manager === null || minute.length === 0
      ? null
      : minute.reduce((sum, point) => sum + point[name], 0) / (minute.length * span);
  const [done, failed] = [perSecond("done"), perSecond("failed")];
  const running = table === null ? null : runningNow(table);
  return html`<dl class="tiles">
    ${tile("Due", summary === null ? null : count(summary.due), oldest(summary))}
    ${tile("Running", running === null ? null : number(running), sessionsOf(manager, running))}
    ${tile("Finished", done === null ? null : `${rate(done)}/s`, "last minute")}
    ${tile("Failed", failed === null ? null : `${rate(failed)}/s`, "last minute", failed !== null && failed > 0 ? "alarm" : "")}
    ${tile("Median wait", latency(summary?.waitMs ?? null), p95(summary?.waitMs ?? null))}
    ${tile("Median run", latency(summary?.runMs ?? null), p95(summary?.runMs ?? null))}
  </dl>`;
}

function States({ id, summary }: { id: string; summary: Summary }): VNode {
  const total = Math.max(
    1,
    order.reduce((sum, state) => sum + summary.states[state].value, 0),
  );
  return html`<section class="panel states" aria-label="Tasks by state">
    <svg
      class="share"
      width="100%"
      height="10"
      role="presentation"
      preserveAspectRatio="none"
      viewBox="0 0 1000 10"
    >
      ${order.map((state, index) => {
        const before = order
          .slice(0, index)
          .reduce((sum, each) => sum + summary.states[each].value, 0);
        const width = (summary.states[state].value / total) * 1000;
        return html`<rect
          key=${state}
          class=${`f-${state}`}
          x=${(before / total) * 1000}
          width=${width}
          height="10"
        />`;
      })}
    </svg>
    <ul>
      ${order.map(
        (state) =>
          html`<li key=${state}>
            <a href=${`/tables/${id}/tasks?state=${state}`}>
              <span class=${`state s-${state}`}>${state}</span> ${countOrFew(summary.states[state])}
            </a>
          </li>`,
      )}
      <li class="total">${count(summary.rows)} rows</li>
    </ul>
  </section>`;
}

const ms = (seconds: number | null): number | null => (seconds === null ? null : seconds * 1000);

function plots(points: readonly Point[], span: number): VNode {
  const at = points.map((point) => point.at);
  const values = (take: (point: Point) => number | null): (number | null)[] => points.map(take);
  return html`<div class="plots">
    <${Plot}
      title="Finished per second"
      least=${4}
      at=${at}
      show=${rate}
      lines=${[
        { label: "done", color: "--done", filled: true, values: values((p) => p.done / span) },
        { label: "failed", color: "--fail", values: values((p) => p.failed / span) },
      ]}
    />
    <${Plot}
      title="Due tasks"
      least=${4}
      at=${at}
      show=${number}
      lines=${[{ label: "due", color: "--plan", filled: true, values: values((p) => p.due) }]}
    />
    <${Plot}
      title="Run time"
      least=${10}
      at=${at}
      show=${pageDuration}
      lines=${[
        { label: "median", color: "--work", dots: true, values: values((p) => ms(p.runP50)) },
        { label: "95 %", color: "--take", dots: true, values: values((p) => ms(p.runP95)) },
      ]}
    />
    <${Plot}
      title="At work"
      least=${4}
      at=${at}
      show=${number}
      lines=${[
        { label: "running", color: "--work", filled: true, values: values((p) => p.running) },
        { label: "sessions", color: "--faint", values: values((p) => p.sessions) },
      ]}
    />
  </div>`;
}

function GroupTable({ id, groups }: { id: string; groups: Groups }): VNode {
  const { groups: list, newest, newestComplete, complete } = groups;
  if (list.length === 0) return html`<p class="empty">No tasks yet.</p>`;
  const exact = (value: number): boolean => complete || value === 0;
  return html`<div class="panel scroll">
      <table class="groups">
        <caption class="hidden">
          Groups
        </caption>
        <${TableHead}
          titles=${["Group", "Running", "Due", "Waiting", "Oldest due", "Done", "Failed", "Other"]}
        />
        <tbody>
          ${list.map(
            (group) =>
              html`<tr key=${group.group}>
                <th scope="row">
                  <a href=${`/tables/${id}/tasks?group=${encodeURIComponent(group.group)}`}
                    >${group.group === "" ? "(empty)" : group.group}</a
                  >${group.paused && html` <span class="tag">paused</span>`}
                </th>
                <td class=${group.running > 0 ? "t-WORK" : "zero"}>${number(group.running)}</td>
                <td class=${group.due > 0 ? "t-PLAN" : "zero"}>
                  ${count({ value: group.due, exact: exact(group.due) })}
                </td>
                <td class=${group.waiting > 0 ? "t-PLAN" : "zero"}>
                  ${count({ value: group.waiting, exact: exact(group.waiting) })}
                </td>
                <td>
                  ${group.oldestDueMs === null ? "" : pageDuration(Math.max(0, group.oldestDueMs))}
                </td>
                <td class=${group.done > 0 ? "" : "zero"}>${number(group.done)}</td>
                <td class=${group.failed > 0 ? "t-FAIL" : "zero"}>${number(group.failed)}</td>
                <td class=${group.other > 0 ? "" : "zero"}>${number(group.other)}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${!complete && html`<p class="note">Due and waiting are estimates; groups in which little waits may be missing.</p>`}
    ${!newestComplete && html`<p class="note">Done, failed and other: of the newest ${number(newest)} rows.</p>`}`;
}
