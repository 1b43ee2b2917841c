import type { Client } from "../../src/shared/postgres/client.js";
import { hasOptions } from "./options.js";

/** A task with optional columns, what was done to it, and what happened. Times are in µs since 1970. */
export interface OptionTask {
  readonly id: string;
  readonly group: string;
  readonly max: number;
  readonly key: string | null;
  readonly after: readonly string[] | null;
  readonly upon: string | null;
  readonly retry: number;
  /** How many tries fail. */
  readonly fails: number;
  /** Whether the error of a failing try is one that is retried. */
  readonly isRetried: boolean;
  readonly args: unknown;
  /** The values that were collected in `args`. Null if the task collects none. */
  readonly collected: readonly number[] | null;
  /** Whether the row is deleted when it has neither output nor error. */
  readonly vanishes: boolean;
  /** The row carries a rule. */
  readonly repeats: boolean;
  /** In µs. Null if the task has none. */
  readonly gap: number | null;
  /** The state in the row. Null if there is no row. */
  readonly state: string | null;
  readonly error: string | null;
  readonly attempt: number;
  /** How many errors of earlier tries the row keeps. */
  readonly keptErrors: number;
  readonly stop: number | null;
  /** What users did to the task. */
  readonly touches: readonly { readonly what: string; readonly at: number }[];
  /** The effects that were committed, in their order. */
  readonly runs: readonly Run[];
  /** The starts of runs of a task with a gap. */
  readonly starts: readonly number[];
}

export interface Run {
  readonly begun: number;
  readonly ended: number;
  readonly attempt: number;
  readonly given: unknown;
}

/** How much the clocks of the executor and the server can differ, in µs. `stop` is read from the former. */
const clockError = 5000;

/** How much nearer to each other than their gap the transactions of two runs can begin, in µs. */
const gapError = 50_000;

/** Returns everything that must not have happened. All tasks have ended. */
export function judgeOptions(tasks: readonly OptionTask[]): string[] {
  const byId = new Map(tasks.map((task) => [task.id, task]));
  return [
    ...tasks.flatMap((task) => {
      const wrong = [
        ...wrongEffects(task),
        ...(task.state === "FAIL" ? wrongFailure(task, byId) : []),
        ...(task.state === "GONE" ? wrongGone(task, byId) : []),
        ...wrongOrder(task, byId),
        ...wrongValues(task),
      ];
      return wrong.map((what) => `${what}: ${show(task, ...predecessorsOf(task, byId))}`);
    }),
    ...wrongSchedules(tasks),
    ...sharedKeys(tasks),
    ...crowdedGroups(tasks),
    ...nearStarts(tasks),
  ];
}

const wasTouched = ({ touches }: OptionTask, what: string): boolean => touches.some((touch) => touch.what === what);

/**
 * How a task has ended. If its row is gone, this follows from what was done to it and from its effects. It is `omitted`
 * if it waited for a failure that did not come, and its row was deleted.
 */
function endOf(task: OptionTask): string {
  if (task.state !== null) return task.state;
  if (wasTouched(task, "delete")) return "deleted";
  if (!task.vanishes) return "lost";
  if (task.runs.length > 0) return "DONE";
  return task.upon === "fail" ? "omitted" : "lost";
}

/** How many of a task's effects may have been undone by its user, who let it run again after they were committed. */
const repeatsOf = ({ touches }: OptionTask): number => touches.filter(({ what }) => what === "run again").length;

function wrongEffects(task: OptionTask): string[] {
  const { runs, starts, gap, fails } = task;
  const end = endOf(task);
  const most = repeatsOf(task);
  // Tasks with a gap commit in the middle, so they have their effect at least once.
  const effects = gap === null ? runs.length : Math.min(starts.length, 1);
  const isAllowed: Readonly<Record<string, boolean>> = {
    DONE: effects >= 1 && effects <= most + 1,
    deleted: effects <= most + 1,
    STOP: (wasTouched(task, "stop") || task.repeats) && (gap !== null || effects <= most),
    FAIL: effects <= most,
    GONE: effects <= most,
    omitted: true,
  };
  return [
    ...(isAllowed[end] === true ? [] : [`${end} with ${effects} effects`]),
    ...(runs.some(({ attempt }) => attempt !== fails) ? ["effect of a wrong attempt"] : []),
    ...(task.attempt > task.retry ? ["more attempts than allowed"] : []),
    ...(task.keptErrors === task.attempt ? [] : ["not the errors of all tries"]),
  ];
}

/** A task fails only if its last try fails, or if another one that waits with its key takes its place. */
function wrongFailure(task: OptionTask, byId: ReadonlyMap<string, OptionTask>): string[] {
  const { error, attempt, fails, retry, isRetried } = task;
  if (error?.includes("planned failure") !== true || attempt >= fails) return ["failed without a reason"];
  if (attempt === (isRetried ? retry : 0)) return [];
  const replacement = /DETAIL: {2}Task (\d+) with the same key takes its place/.exec(error)?.[1];
  return isReplacement(task, replacement, byId) ? [] : ["failed although it had tries left"];
}

const isReplacement = (task: OptionTask, id: string | undefined, byId: ReadonlyMap<string, OptionTask>): boolean =>
  id !== undefined && id !== task.id && task.key !== null && byId.get(id)?.key === task.key;

/** A task is GONE only if a task for which it waits has ended otherwise, or if another one takes its place. */
function wrongGone(task: OptionTask, byId: ReadonlyMap<string, OptionTask>): string[] {
  const { error, after, upon } = task;
  if (error === null) {
    const ends = predecessorsOf(task, byId).map(endOf);
    return upon === "fail" && ends.every(mayBeDone) ? [] : ["gone without an error"];
  }
  const refused = /^ERROR: {2}task (\d+), which it waits for, is (\w+)$/.exec(error);
  if (refused !== null) {
    const [, id = "", state] = refused;
    const predecessor = byId.get(id);
    const end = predecessor === undefined ? "unknown" : endOf(predecessor);
    const isTrue =
      after?.includes(id) === true && state !== "DONE" && (end === state || (end === "omitted" && state === "GONE"));
    return isTrue && (upon ?? "done") === "done" ? [] : ["gone for a wrong reason"];
  }
  const replacement = /^ERROR: {2}task (\d+) with the same key takes its place/.exec(error)?.[1];
  return isReplacement(task, replacement, byId) ? [] : ["gone without a reason"];
}

/** A task without a row counts as DONE if its row was deleted before it was looked up, but not if it was deleted later. */
const mayBeDone = (end: string): boolean => end === "DONE" || end === "deleted" || end === "omitted";

const predecessorsOf = ({ after }: OptionTask, byId: ReadonlyMap<string, OptionTask>): OptionTask[] =>
  (after ?? []).flatMap((id) => byId.get(id) ?? []);

/** A task that waits for others must have run only after the last of them, and only if they have ended as it wants. */
function wrongOrder(task: OptionTask, byId: ReadonlyMap<string, OptionTask>): string[] {
  const begun = Math.min(...task.runs.map((run) => run.begun));
  if (task.after === null || task.runs.length === 0 || wasTouched(task, "let go")) return [];
  const predecessors = predecessorsOf(task, byId);
  const ends = predecessors.map(endOf);
  const isAllowed =
    task.upon === "end" || (task.upon === "fail" ? ends.some((end) => end !== "DONE") : ends.every(mayBeDone));
  const early = predecessors.filter((predecessor) => endTimeOf(predecessor) > begun);
  return [
    ...(isAllowed ? [] : [`ran although others are ${ends.join(", ")}`]),
    ...early.map(({ id }) => `ran before ${id} had ended`),
  ];
}

/** The earliest time at which a task can have ended. */
function endTimeOf(task: OptionTask): number {
  const times = task.runs.map(({ ended }) => ended);
  const end = endOf(task);
  if ((end === "FAIL" || end === "GONE") && task.stop !== null) times.push(task.stop - clockError);
  if (end === "STOP" || end === "deleted") {
    times.push(...task.touches.filter(({ what }) => what === "stop" || what === "delete").map(({ at }) => at));
  }
  return Math.max(-Infinity, ...times);
}

/** Each run must have got the values of the task. Of those that are collected, the last run must have got all. */
function wrongValues({ collected, args, runs }: OptionTask): string[] {
  if (collected === null) {
    return runs.every(({ given }) => sameJson(given, args)) ? [] : ["wrong values"];
  }
  const last = runs.at(-1);
  return last === undefined || sameJson(sorted(last.given), sorted(collected)) ? [] : ["wrong values were collected"];
}

const sameJson = (one: unknown, other: unknown): boolean => JSON.stringify(one) === JSON.stringify(other);

const sorted = (list: unknown): number[] => (Array.isArray(list) ? list : []).map(Number).toSorted((a, b) => a - b);

/** The schedules of keys were stopped at the end. Until then, exactly one row of each key carried it. */
function wrongSchedules(tasks: readonly OptionTask[]): string[] {
  const keys = new Set(tasks.flatMap(({ key, repeats }) => (repeats && key !== null ? [key] : [])));
  return [...keys].flatMap((key) => {
    const stopped = tasks.filter((task) => task.key === key && task.repeats && task.state === "STOP");
    return stopped.length === 1 ? [] : [`${stopped.length} rows carried the schedule of ${key}: ${show(...stopped)}`];
  });
}

interface Begun {
  readonly task: OptionTask;
  readonly begun: number;
  readonly ended: number;
}

const runsInOrder = (tasks: readonly OptionTask[]): Begun[] =>
  tasks
    .flatMap((task) => task.runs.map(({ begun, ended }) => ({ task, begun, ended })))
    .toSorted((a, b) => a.begun - b.begun);

/** Two runs of a key must not overlap. */
function sharedKeys(tasks: readonly OptionTask[]): string[] {
  const last = new Map<string, Begun>();
  return runsInOrder(tasks.filter(({ key }) => key !== null)).flatMap((run) => {
    const key = run.task.key ?? "";
    const before = last.get(key);
    if (before === undefined || run.ended > before.ended) last.set(key, run);
    return before !== undefined && before.ended > run.begun ? [`a key ran twice: ${show(before.task, run.task)}`] : [];
  });
}

/** A run must not start while more than `max` others of its group run. */
function crowdedGroups(tasks: readonly OptionTask[]): string[] {
  let beside: Begun[] = [];
  return runsInOrder(tasks).flatMap((run) => {
    beside = beside.filter(({ ended }) => ended > run.begun);
    const others = beside.filter(({ task }) => task.group === run.task.group);
    beside.push(run);
    return others.length > run.task.max
      ? [`too many at once: ${show(run.task, ...others.map(({ task }) => task))}`]
      : [];
  });
}

/** No run must start nearer to the start before it in its group than its gap. */
function nearStarts(tasks: readonly OptionTask[]): string[] {
  const starts = tasks.flatMap((task) => task.starts.map((at) => ({ task, at }))).toSorted((a, b) => a.at - b.at);
  const last = new Map<string, number>();
  return starts.flatMap(({ task, at }) => {
    const distance = at - (last.get(task.group) ?? -Infinity);
    last.set(task.group, at);
    return distance < (task.gap ?? 0) - gapError ? [`started ${distance} µs after another: ${show(task)}`] : [];
  });
}

const show = (...tasks: readonly OptionTask[]): string => tasks.map((task) => JSON.stringify(task)).join(" and ");

const micros = (time: string): string => `(extract(epoch FROM ${time}) * 1e6)::float8`;

const list = (object: string, from: string): string =>
  `coalesce((SELECT jsonb_agg(${object}) FROM (SELECT * FROM ${from}) AS l), '[]')`;

/** Reads all tasks with optional columns, also those whose row is gone, and judges them. */
export async function judgeOptionRows(
  client: Client,
): Promise<{ readonly summary: string; readonly wrong: readonly string[] }> {
  await client.query(
    "CREATE INDEX ON performed (task); CREATE INDEX ON started (task); CREATE INDEX ON touched (task)",
  );
  await client.query("CREATE INDEX ON collected (task); ANALYZE");
  // The rows of successors were not noted when they were inserted. Their first try fails if they have `retry`, and neither `sqlstate` nor `overlap`.
  const { rows: tasks } = await client.query<OptionTask>(`
    SELECT i.id::text AS id, coalesce(p."group", t."group") AS group, coalesce(p.max, t.max) AS max,
      coalesce(p.key, t.key) AS key, p.after::text[] AS after, p.upon, coalesce(p.retry, t.retry, 0) AS retry,
      coalesce(p.fails, CASE WHEN t.sqlstate IS NULL AND t.retry > 0 AND t.overlap IS NOT TRUE THEN 1 END, 0) AS fails, coalesce(p.is_retried, true) AS "isRetried",
      coalesce(p.vanishes, false) AS vanishes, t.rule IS NOT NULL AS repeats, CASE WHEN p.task IS NULL THEN t.args ELSE p.args END AS args,
      CASE WHEN p.collects THEN ARRAY(SELECT value::float8 FROM collected WHERE task = i.id) END AS collected,
      ${micros("p.gap")} AS gap,
      t.state::text AS state, t.error, coalesce(t.attempt, 0) AS attempt, coalesce(jsonb_array_length(t.errors), 0) AS "keptErrors", ${micros("t.stop")} AS stop,
      ${list(`jsonb_build_object('what', what, 'at', ${micros("at")})`, "touched WHERE task = i.id ORDER BY at")} AS touches,
      ${list(
        `jsonb_build_object('begun', ${micros("begun")}, 'ended', ${micros("ended")}, 'attempt', attempt, 'given', given)`,
        "performed WHERE task = i.id ORDER BY begun",
      )} AS runs,
      ARRAY(SELECT ${micros("at")} FROM started WHERE task = i.id ORDER BY at) AS starts
    FROM (
      SELECT task AS id FROM promised UNION SELECT id FROM task WHERE ${hasOptions}
      UNION SELECT task FROM performed UNION SELECT task FROM started
    ) AS i LEFT JOIN promised AS p ON p.task = i.id LEFT JOIN task AS t ON t.id = i.id
    ORDER BY i.id`);
  return { summary: summaryOf(tasks), wrong: judgeOptions(tasks) };
}

/** Numbers that show whether the tasks did what they are for. */
function summaryOf(tasks: readonly OptionTask[]): string {
  const count = (what: string, is: (task: OptionTask) => boolean) => `${tasks.filter(is).length} ${what}`;
  return [
    count("tasks with options", () => true),
    count("done after a retry", ({ state, attempt }) => state === "DONE" && attempt > 0),
    count("failed", ({ state }) => state === "FAIL"),
    count("ran after others", ({ after, runs }) => after !== null && runs.length > 0),
    count("gone because of others", ({ error }) => error?.includes("which it waits for") === true),
    count("gone without an error", ({ state, error }) => state === "GONE" && error === null),
    count("replaced by their key", ({ error }) => error?.includes("takes its place") === true),
    count("ran with a key", ({ key, runs }) => key !== null && runs.length > 0),
    count("collected several values", ({ collected }) => (collected?.length ?? 0) > 1),
    count("with a gap", ({ starts }) => starts.length > 0),
    count("vanished", ({ state, vanishes }) => state === null && vanishes),
    ...["stop", "delete", "run again", "let go"].map((what) =>
      count(`touched: ${what}`, ({ touches }) => touches.some((touch) => touch.what === what)),
    ),
  ].join(", ");
}
