import { html } from "htm/preact";
import type { VNode } from "preact";
import type { RunHistory } from "../../tasks/queries/history.js";
import type { HistoryPoint, TableHistory } from "../api/schemas.js";
import { localText, numberText, rateText } from "./format.js";
import { Plot, type Line } from "./plot.js";
import { changedQuery, setQuery } from "./router.js";
import { useResource, type Resource } from "./resource.js";
import { StaleNotice } from "./parts.js";
import { formatDuration } from "../../shared/formatDuration.js";

/** The time spans of the plots. The leader's memory covers one hour. Anything longer is read from the rows. */
const timeSpans = [
  { label: "10 min", hours: 1 / 6 },
  { label: "1 hour", hours: 1 },
  { label: "1 day", hours: 24 },
  { label: "2 days", hours: 48 },
  { label: "1 week", hours: 168 },
  { label: "30 days", hours: 720 },
] as const;

export function OverTime(props: {
  id: string;
  query: URLSearchParams;
  history: Resource<TableHistory>;
  hasManager: boolean;
}): VNode {
  const { id, query, history, hasManager } = props;
  // A process without a manager has nothing in its memory.
  const usual = hasManager ? "10 min" : "1 day";
  const chosen = query.get("range") ?? usual;
  const { hours } = timeSpans.find(({ label }) => label === chosen) ?? timeSpans[0];
  return html`<section>
    <div class="row">
      <h2>Over time</h2>
      <span class="choice" role="group" aria-label="Time span">
        ${timeSpans.map(
          ({ label, hours: each }) =>
            html`<button
              key=${label}
              aria-pressed=${each === hours}
              onClick=${() => setQuery(changedQuery(query, { range: label }))}
            >
              ${label}
            </button>`,
        )}
      </span>
    </div>
    ${
      hours > 1
        ? html`<${HourlyPlots} key=${hours} id=${id} hours=${hours} />`
        : html`<${RecentPlots} id=${id} history=${history} hours=${hours} hasManager=${hasManager} />`
    }
  </section>`;
}

type Values = Omit<Parameters<typeof Plot>[0], "at" | "empty" | "timeOf" | "linkOf">;

const toMs = (seconds: number | null): number | null => (seconds === null ? null : seconds * 1000);

/** Both in seconds. */
function durations(title: string, median: readonly (number | null)[], most: readonly (number | null)[]): Values {
  const lines = [
    { label: "median", color: "--work", dots: true, values: median.map(toMs) },
    { label: "95 %", color: "--take", dots: true, values: most.map(toMs) },
  ];
  return { title, unit: "milliseconds", minTop: 10, format: formatDuration, lines };
}

const counts = (title: string, lines: readonly Line[]): Values => ({
  title,
  unit: "count",
  minTop: 4,
  format: numberText,
  lines,
});

/** An idle table has no values in most intervals. */
const bridgedSeconds = 30;

function RecentPlots(props: {
  id: string;
  history: Resource<TableHistory>;
  hours: number;
  hasManager: boolean;
}): VNode {
  const { id, history, hours, hasManager } = props;
  const span = history.value?.spanSeconds ?? 5;
  // The last interval is left out because it has not ended yet.
  const points = (history.value?.points ?? []).slice((-hours * 3_600) / span - 1, -1);
  const at = points.map((point) => point.at);
  const values = (valueOf: (point: HistoryPoint) => number | null): (number | null)[] =>
    points.map((point) => (hasManager ? valueOf(point) : null));
  const perSecond = (count: number | null): number | null => (count === null ? null : count / span);
  const finished: Values = {
    ...counts("Finished per second", [
      { label: "done", color: "--done", filled: true, values: values((p) => perSecond(p.done)) },
      { label: "failed", color: "--fail", values: values((p) => perSecond(p.failed)) },
    ]),
    unit: "rate",
    format: rateText,
  };
  const due = counts("Due tasks", [{ label: "due", color: "--plan", filled: true, values: points.map((p) => p.due) }]);
  const running = counts("Running tasks and sessions", [
    { label: "running", color: "--work", filled: true, values: values((p) => p.running) },
    { label: "sessions", color: "--faint", values: values((p) => p.sessions) },
  ]);
  const wait = durations(
    "Queue wait",
    values((p) => p.waitP50),
    values((p) => p.waitP95),
  );
  const run = durations(
    "Run time",
    values((p) => p.runP50),
    values((p) => p.runP95),
  );
  const empty = hasManager ? "No values yet." : "Known only to the leader.";
  return html`<${StaleNotice} of=${history} />
    <div class="plots">
      ${[finished, due, wait, run, running].map(
        (plot) =>
          html`<${Plot}
            key=${plot.title}
            ...${plot}
            at=${at}
            bridged=${bridgedSeconds / span}
            timeOf=${(point: number) => localText(isoTime(point))}
            linkOf=${(point: number) => tasksLink(id, Math.floor(point / 60) * 60, 60, plot === due ? "planned" : plot === run ? "slowest" : undefined)}
            empty=${plot === due ? undefined : empty}
          />`,
      )}
    </div>`;
}

function HourlyPlots({ id, hours }: { id: string; hours: number }): VNode {
  const resource = useResource<RunHistory>(`/tables/${id}/runs?hours=${hours}`, {
    table: id,
    minIntervalMs: 60_000,
    pollMs: 60_000,
  });
  const { value } = resource;
  const points = value?.hours ?? [];
  const counted = points.some(({ count }) => (count ?? 0) > 0) ? points : [];
  const plots = [
    counts("Finished per hour", [
      {
        label: "done",
        color: "--done",
        filled: true,
        values: counted.map((p) => (p.count === null ? null : p.count - (p.failed ?? 0))),
      },
      { label: "failed", color: "--fail", values: counted.map((p) => p.failed) },
    ]),
    durations(
      "Queue wait",
      points.map((p) => p.waitP50),
      points.map((p) => p.waitP95),
    ),
    durations(
      "Run time",
      points.map((p) => p.runP50),
      points.map((p) => p.runP95),
    ),
  ];
  const at = points.map((point) => point.at);
  const empty = "No runs ended in this time, or their rows are gone.";
  return html`<${StaleNotice} of=${resource} />
    <div class="plots" aria-busy=${resource.busy}>
      ${plots.map(
        (plot) =>
          html`<${Plot}
            key=${plot.title}
            ...${plot}
            at=${at}
            isPartial=${true}
            timeOf=${(point: number) => hourText(point, point === at.at(-1))}
            linkOf=${(point: number) => tasksLink(id, point, hourSeconds, plot.title === "Run time" ? "slowest" : undefined)}
            empty=${empty}
          />`,
      )}
    </div>
    <${SlowestHours} id=${id} points=${points} />
    ${value !== null && html`<p class="note">${sourceText(value)}</p>`}`;
}

const hourSeconds = 3_600;
const shownHours = 3;

/** In a plot of many hours, one of them is too narrow for a finger. */
function SlowestHours({ id, points }: { id: string; points: RunHistory["hours"] }): VNode | null {
  const slowest = points
    .flatMap(({ at, runP95 }) => (runP95 === null ? [] : [{ at, runP95 }]))
    .toSorted((one, other) => other.runP95 - one.runP95)
    .slice(0, shownHours);
  if (slowest.length < shownHours) return null;
  return html`<p class="slowest-hours">
    Slowest hours:${" "}
    ${slowest.map(
      ({ at, runP95 }) =>
        html`<a key=${at} href=${tasksLink(id, at, hourSeconds, "slowest")}
          >${localText(isoTime(at))} <small>95 % within ${formatDuration(runP95 * 1_000)}</small></a
        >`,
    )}
  </p>`;
}

function hourText(from: number, isPartial: boolean): string {
  const end = isPartial ? "now" : localText(isoTime(from + hourSeconds)).replace(/^.*, /, "");
  return `${localText(isoTime(from))} – ${end}`;
}

const isoTime = (seconds: number): string => new Date(seconds * 1_000).toISOString();

/** The tasks that ended in this time, also the slowest first, or that were planned for it. */
function tasksLink(id: string, from: number, seconds: number, which?: "planned" | "slowest"): string {
  const [start, end] = which === "planned" ? (["from", "to"] as const) : (["endedFrom", "endedTo"] as const);
  const query = new URLSearchParams([
    [start, isoTime(from)],
    [end, isoTime(from + seconds)],
    ...(which === "slowest" ? [["order", "slowest"]] : []),
  ]);
  return `/tables/${id}/tasks?${query.toString()}`;
}

function sourceText({ scanned, complete }: RunHistory): string {
  const rows = numberText(scanned);
  return complete
    ? `Read from the ${rows} rows of the table. Runs whose rows were deleted or replaced are not included. The last hour is not over.`
    : `Read from the newest ${rows} rows. The hours before these are unknown, and the last one is not over.`;
}
