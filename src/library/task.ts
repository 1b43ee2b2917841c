import { allFeatures, featureColumns, type Feature } from "../manager/schema/features.js";
import { readFeatures } from "../manager/schema/ownColumns.js";
import type { TaskTable } from "../manager/schema/taskTable.js";
import { PgTaskError } from "../shared/errors.js";
import type { Queryable } from "../shared/postgres/client.js";
import { isTaskState, type TaskState } from "../shared/taskState.js";
import { readTryErrors, type TryError } from "../shared/tryErrors.js";
import { readTask, type ColumnValue, type TaskColumns } from "../tasks/queries/readTask.js";

/**
 * A task with all its columns (docs/table.md). Ids are strings, because they can be too large for a number. Times are
 * ISO 8601 text with microseconds, or `infinity`. Intervals are text in the session's style.
 */
export interface Task {
  /** Primary key. */
  readonly id: string;
  /** The task that inserted this one, or whose successor it is. */
  readonly parent: string | null;
  /** The state. */
  readonly state: TaskState;
  /** Whether a session has the task. A task with a final state has ended only when this is false. */
  readonly claimed: boolean;
  /** When it is due. `infinity` for a paused schedule. */
  readonly plan: string;
  /** When it was claimed. */
  readonly take: string | null;
  /** When it started. */
  readonly start: string | null;
  /** When it ended. */
  readonly stop: string | null;
  /** When it was inserted. */
  readonly created: string | null;
  /** SQL to run. */
  readonly input: string;
  /** Values for its input. */
  readonly args: unknown;
  /** Result of the run. */
  readonly output: string | null;
  /** Errors of the run. */
  readonly error: string | null;
  /** Errors of tries that led to another one, the oldest first. */
  readonly errors: readonly TryError[] | null;
  /** Free for your own use. */
  readonly data: string | null;
  /** Group name. */
  readonly group: string;
  /** How many others of its group may run at the same time; negative: pause in ms. */
  readonly max: number;
  /** Shortest time between two starts in its group. */
  readonly gap: string | null;
  /** At most one task with this key waits, and at most one runs. */
  readonly key: string | null;
  /** Ids of the older tasks for whose end it waits. */
  readonly after: readonly string[] | null;
  /** How these have to end. */
  readonly upon: string | null;
  /** When it runs again: cron, RRULE or a query. */
  readonly rule: string | null;
  /** Time zone of the rule. */
  readonly zone: string | null;
  /** Whether each missed time is made up for. */
  readonly catchup: boolean | null;
  /** Whether the next run is planned when this one starts. */
  readonly overlap: boolean | null;
  /** Repeat after this. */
  readonly repeat: string;
  /** Whether the next plan counts from the end. */
  readonly drift: boolean;
  /** How often it is tried again after an error. */
  readonly retry: number | null;
  /** Pause before it is tried again. */
  readonly backoff: string | null;
  /** Errors after which it is tried again. */
  readonly sqlstate: readonly string[] | null;
  /** How many tries have failed. */
  readonly attempt: number | null;
  /** How long after its plan it may still start. */
  readonly active: string;
  /** Allowed run time, 0 is unlimited. */
  readonly timeout: string;
  /** How long the row is kept after its end, 0 is forever. */
  readonly keep: string;
  /** Whether the row is deleted when output and error are both null. */
  readonly delete: boolean;
  /** Tasks that its session runs before it ends. */
  readonly count: number;
  /** How long its session may serve the group. */
  readonly live: string;
  /** Whether session state is kept between the tasks of one session. */
  readonly save: boolean;
  /** Whether the effect happens exactly once, where the SQL allows it. */
  readonly atomic: boolean;
  /** Whether the output has column names. */
  readonly header: boolean;
  /** Whether only strings are quoted in the output. */
  readonly string: boolean;
  /** Between columns of the output. */
  readonly delimiter: string;
  /** Escapes in the output. */
  readonly escape: string;
  /** Quotes in the output. */
  readonly quote: string;
  /** Text for null in the output. */
  readonly null: string;
  /** Connection string of another database, with its password masked. */
  readonly remote: string | null;
  /** Process id of the backend that runs it, or ran it last. */
  readonly pid: number | null;
  /** How often its run has taken its own session down. */
  readonly crash: number;
  /** Columns of your own, by name. */
  readonly columns: Readonly<Record<string, unknown>>;
}

/** Reads a task. Returns null if there is no such task. */
export async function getTask(client: Queryable, table: TaskTable, id: string): Promise<Task | null> {
  const columns = await readTask(client, table, id);
  if (columns === null) return null;
  return toTask(columns, await readFeatures(client, table));
}

/** Columns that a Task does not have, because they are for pg-task's own use. */
const internalColumns = ["owner", "ready", "hash", "due", "wait", "plain", "role"];

/** The values of a row by column. A column that belongs to a feature that is off is the user's own, and reads as null. */
class Row {
  readonly #values: TaskColumns;
  readonly #own: ReadonlySet<string>;

  constructor(values: TaskColumns, own: ReadonlySet<string>) {
    this.#values = values;
    this.#own = own;
  }

  get(name: string): ColumnValue {
    return this.#own.has(name) ? null : (this.#values.get(name) ?? null);
  }

  text(name: string): string | null {
    const value = this.get(name);
    if (value === null) return null;
    return typeof value === "object" ? JSON.stringify(value) : String(value);
  }

  number(name: string): number | null {
    const value = this.get(name);
    return value === null ? null : Number(value);
  }

  flag(name: string): boolean | null {
    const value = this.get(name);
    return value === null ? null : value === true;
  }

  list(name: string): readonly string[] | null {
    const value = this.get(name);
    return Array.isArray(value) ? value.map(String) : null;
  }
}

function toTask(all: TaskColumns, features: ReadonlySet<Feature>): Task {
  const off = [...allFeatures].filter((feature) => !features.has(feature));
  const own = new Set(off.flatMap((feature) => featureColumns[feature]));
  const row = new Row(all, own);
  const state = row.text("state");
  if (!isTaskState(state)) throw new PgTaskError("INTERNAL", `unknown state ${state}`);
  const known = { ...resultOf(row), ...limitsOf(row), ...scheduleOf(row), ...formatOf(row), state };
  const names = new Set<string>([...Object.keys(known), ...internalColumns]);
  const columns = Object.fromEntries([...all].filter(([name]) => own.has(name) || !names.has(name)));
  return { ...known, claimed: row.get("owner") !== null, columns };
}

/** What a task is, and what has become of it. */
const resultOf = (row: Row) => ({
  id: row.text("id") ?? "",
  parent: row.text("parent"),
  plan: row.text("plan") ?? "",
  take: row.text("take"),
  start: row.text("start"),
  stop: row.text("stop"),
  created: row.text("created"),
  input: row.text("input") ?? "",
  args: row.get("args"),
  output: row.text("output"),
  error: row.text("error"),
  errors: readTryErrors(row.get("errors")),
  data: row.text("data"),
  pid: row.number("pid"),
  crash: row.number("crash") ?? 0,
});

/** When a task may run, and how. */
const limitsOf = (row: Row) => ({
  group: row.text("group") ?? "",
  max: row.number("max") ?? 0,
  gap: row.text("gap"),
  key: row.text("key"),
  after: row.list("after"),
  upon: row.text("upon"),
  retry: row.number("retry"),
  backoff: row.text("backoff"),
  sqlstate: row.list("sqlstate"),
  attempt: row.number("attempt"),
  active: row.text("active") ?? "",
  timeout: row.text("timeout") ?? "",
  keep: row.text("keep") ?? "",
  delete: row.flag("delete") ?? false,
  count: row.number("count") ?? 0,
  live: row.text("live") ?? "",
  save: row.flag("save") ?? false,
  atomic: row.flag("atomic") ?? false,
  remote: row.text("remote"),
});

/** When a task runs again. */
const scheduleOf = (row: Row) => ({
  rule: row.text("rule"),
  zone: row.text("zone"),
  catchup: row.flag("catchup"),
  overlap: row.flag("overlap"),
  repeat: row.text("repeat") ?? "",
  drift: row.flag("drift") ?? false,
});

/** How the output is formatted. */
const formatOf = (row: Row) => ({
  header: row.flag("header") ?? false,
  string: row.flag("string") ?? false,
  delimiter: row.text("delimiter") ?? "",
  escape: row.text("escape") ?? "",
  quote: row.text("quote") ?? "",
  null: row.text("null") ?? "",
});
