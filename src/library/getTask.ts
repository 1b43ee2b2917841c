import type { TaskTable } from "../manager/schema/taskTable.js";
import { PgTaskError } from "../shared/errors.js";
import type { Queryable } from "../shared/postgres/client.js";
import { isTaskState } from "../shared/taskState.js";
import { readTryErrors } from "../shared/tryErrors.js";
import { readTask, type ColumnValue, type TaskColumns } from "../tasks/queries/readTask.js";

import type { Task } from "./task.js";

/** Reads a task. Returns null if there is no such task. */
export async function getTask(client: Queryable, table: TaskTable, id: string): Promise<Task | null> {
  const columns = await readTask(client, table, id);
  return columns === null ? null : toTask(columns);
}

/** Columns that a Task does not have, because they are for pg-task's own use. */
const internalColumns = ["owner", "ready", "hash", "due", "wait", "plain", "role"];

/** The values of a row by column. */
class Row {
  readonly #values: TaskColumns;

  constructor(values: TaskColumns) {
    this.#values = values;
  }

  get(name: string): ColumnValue {
    return this.#values.get(name) ?? null;
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

function toTask(all: TaskColumns): Task {
  const row = new Row(all);
  const state = row.text("state");
  if (!isTaskState(state)) throw new PgTaskError("INTERNAL", `unknown state ${state}`);
  const known = { ...resultOf(row), ...limitsOf(row), ...scheduleOf(row), ...formatOf(row), state };
  const names = new Set<string>([...Object.keys(known), ...internalColumns]);
  const columns = Object.fromEntries([...all].filter(([name]) => !names.has(name)));
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
