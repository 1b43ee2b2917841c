import { html } from "htm/preact";
import type { VNode } from "preact";
import type { PastRun, Schedule, Schedules, ZonedTime } from "../../tasks/queries/schedules.js";
import { Actions, scheduleActions } from "./actions.js";
import { mayChange } from "./apiClient.js";
import { fullTimeText, localText, relativeTimeText, wallText } from "./format.js";
import { changedQuery, pickedQuery, setQuery } from "./router.js";
import { useResource } from "./resource.js";
import { DataTable, GroupLink, SearchBox, StaleNotice, StateBadge } from "./parts.js";
import { describeSuspension, formatLateness, shortRule } from "../../shared/describeSchedule.js";
import { formatDuration } from "../../shared/formatDuration.js";
import { printableLine, printableText } from "../../shared/printable.js";

const filters = ["group", "text", "limit"] as const;
const firstLimit = 100;
const maxLimit = 1_000;

export function SchedulesView({ id, query, now }: { id: string; query: URLSearchParams; now: number }): VNode {
  const request = pickedQuery(query, filters);
  // The server computes the coming times anew for each request, so requests are less frequent than for tasks.
  const resource = useResource<Schedules>(`/tables/${id}/schedules?${request.toString()}`, {
    table: id,
    minIntervalMs: 2_000,
    pollMs: 60_000,
  });
  const { value, busy, refresh } = resource;
  const change = (name: string, to: string): void => setQuery(changedQuery(query, { limit: "", [name]: to }));
  const limit = Number(query.get("limit") ?? firstLimit);
  const showMore = (): void => setQuery(changedQuery(query, { limit: String(Math.min(maxLimit, limit * 2)) }));
  const isFiltered = request.has("group") || request.has("text");
  return html`<main id="main" class="schedules" aria-busy=${busy}>
    <h1 class="hidden">Schedules</h1>
    <div class="filters" role="search">
      <${SearchBox}
        placeholder="Group"
        label="Group (exact match)"
        text=${query.get("group") ?? ""}
        find=${(text: string) => change("group", text)}
      />
      <${SearchBox}
        placeholder="Part of input or rule"
        text=${query.get("text") ?? ""}
        wide=${true}
        find=${(text: string) => change("text", text)}
      />
      ${mayChange.value && html`<a class="button" href=${`/tables/${id}/add?schedule`}>Add schedule</a>`}
    </div>
    <${StaleNotice} of=${resource} />
    ${value !== null && value.schedules.length > 0 && html`<${Rows} id=${id} schedules=${value.schedules} now=${now} refresh=${refresh} />`}
    ${value?.schedules.length === 0 && html`<p class="empty">${isFiltered ? "No matching schedules." : noSchedules}</p>`}
    <nav class="paging" aria-label="Pages">
      ${value?.more === true && (limit < maxLimit ? html`<button onClick=${showMore}>Show more</button>` : html`<p class="note">Only the first ${maxLimit} schedules are shown.</p>`)}
    </nav>
  </main>`;
}

const noSchedules = "No schedules yet. A task with a rule or with repeat is one.";

function Rows(props: { id: string; schedules: readonly Schedule[]; now: number; refresh: () => void }): VNode {
  const { id, schedules, now, refresh } = props;
  return html`<${DataTable}
    class="timetable cards"
    caption="Schedules by their planned times"
    titles=${["Id", "Group", "Rule", "Next", "Your time", "Then", "Last runs", "Input"]}
    hidden="Actions"
  >
    ${schedules.map(
      (schedule) =>
        html`<tr key=${schedule.id} data-id=${schedule.id} data-state=${schedule.state}>
          <th scope="row"><a href=${`/tables/${id}/tasks/${schedule.id}`}>${schedule.id}</a></th>
          <td class="group">
            <${GroupLink} table=${id} group=${schedule.group} />
            ${schedule.key !== null && html`<small title=${printableLine(schedule.key)}>key ${printableLine(schedule.key)}</small>`}
            ${schedule.role !== null && html`<small title=${printableLine(schedule.role)}>role ${printableLine(schedule.role)}</small>`}
          </td>
          <td class="rule" title=${printableText(schedule.rule ?? "")}>
            <span class="sql">${breakable(printableLine(ruleText(schedule)))}</span>
            <small>${[schedule.zone, ...traits(schedule)].filter(Boolean).join(" · ")}</small>
          </td>
          ${timeCells(schedule, now)}
          <td class="last" data-title="Last runs">
            ${schedule.owed !== null && html`<span class="tag" title=${printableText(schedule.owed)}>next run not planned yet</span>`}
            ${schedule.failedTries > 0 && html`<span class="tag" title=${printableText(schedule.tryError ?? "")}>try ${schedule.failedTries} failed</span>`}
            ${schedule.last.map((run) => outcome(id, run))}
            ${schedule.last.length > 0 && html`<a href=${`/tables/${id}/tasks?schedule=${schedule.id}`} aria-label=${`All runs of schedule ${schedule.id}`}>all</a>`}
          </td>
          <td class="sql" title=${printableText(schedule.input)}>
            <span class="lines">${printableLine(schedule.input.trim().replace(/\s+/g, " "))}</span>
          </td>
          <td class="do">
            <${Actions}
              table=${id}
              task=${{ ...schedule, plan: schedule.plan ?? "infinity" }}
              actions=${scheduleActions(schedule)}
              done=${refresh}
            />
          </td>
        </tr>`,
    )}
  <//>`;
}

const ruleText = ({ rule, repeat }: Schedule): string => (rule === null ? `every ${repeat ?? ""}` : shortRule(rule));

/** The parts of an RRULE are not broken. */
const breakable = (rule: string): (string | VNode)[] =>
  rule.split(/(?<=;)/).flatMap((part, index) => (index === 0 ? [part] : [html`<wbr key=${index} />`, part]));

const traits = (schedule: Schedule): string[] =>
  (["drift", "catchup", "overlap"] as const).filter((name) => schedule[name]);

const wallOf = (time: ZonedTime): string => (time.wall === null ? localText(time.at) : wallText(time.wall));

/** Three cells: the next time in the zone of the rule and in that of the reader, and the times after it. */
function timeCells(schedule: Schedule, now: number): VNode {
  const { next, problem, state, paused, pausedItself, suspendedAfter, overdueMs } = schedule;
  const late = formatLateness(overdueMs);
  const isUnknown = next.length === 0 && problem === null && !pausedItself && state === "PLAN";
  const suspended = suspendedAfter === null ? null : describeSuspension(suspendedAfter);
  const tag = suspended ?? (pausedItself ? "paused" : paused ? "group paused" : null);
  const [first, ...later] = next;
  return html`<td class="next" data-title="Next">
      ${problem !== null && html`<span class="failed" title=${printableLine(problem)}>${printableLine(problem)}</span>`}
      ${state !== "PLAN" && html`<${StateBadge} task=${{ state, ready: null }} />${" "}`}
      ${first !== undefined && html`<span title=${first.wall ?? ""}>${first.wall === null ? "" : wallOf(first)}</span>${" "}`}
      ${tag !== null && html`<span class="tag">${tag}</span>`}
      ${late !== null && html`<span class="tag">${late}</span>`} ${isUnknown && "not yet known"}
    </td>
    <td class="next" data-title="Your time">
      ${first !== undefined && html`<time title=${fullTimeText(first.at)}>${localText(first.at)}</time> <small>${relativeTimeText(first.at, now)}</small>`}
    </td>
    <td class="then" data-title="Then">
      ${later.map((time, index) => {
        const [day] = wallOf(later[index - 1] ?? time).split(", ");
        const text = index > 0 ? wallOf(time).replace(`${day}, `, "") : wallOf(time);
        return html`${index > 0 && html`<span aria-hidden="true"> · </span>`}<time
            key=${time.at}
            title=${`${time.wall ?? ""}, in your time zone ${fullTimeText(time.at)}`}
            >${text}</time
          >`;
      })}
    </td>`;
}

/** Colours alone would not tell the states apart. */
const marks: Readonly<Record<string, string>> = { DONE: "✓", FAIL: "✕", GONE: "○", STOP: "■" };

function outcome(id: string, { id: run, state, stop, tookMs, error }: PastRun): VNode {
  const took = tookMs === null ? "" : `, took ${formatDuration(Math.max(0, tookMs))}`;
  const title = `${state}${stop === null ? "" : ` ${fullTimeText(stop)}`}${took}${error === null ? "" : `: ${printableLine(error)}`}`;
  return html`<a
    key=${run}
    class=${`state mark-only s-${state}`}
    href=${`/tables/${id}/tasks/${run}`}
    title=${title}
    aria-label=${`Task ${run}: ${title}`}
    >${marks[state] ?? state}</a
  >`;
}
