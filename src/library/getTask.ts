import type { TaskTable } from "../manager/schema/taskTable.js";
import { PgTaskError } from "../shared/errors.js";
import type { Queryable } from "../shared/postgres/client.js";
import {
  columnList,
  isTaskColumn,
  valueKind,
  type ColumnName,
  type ColumnsWith,
  type NamedColumn,
} from "../shared/taskColumns.js";
import { isTaskState } from "../shared/taskState.js";
import { readTryErrors } from "../shared/tryErrors.js";
import { readTask, type ColumnValue, type TaskColumns } from "../tasks/queries/readTask.js";

import type { Task } from "./task.js";

export async function getTask(client: Queryable, table: TaskTable, id: string): Promise<Task | null> {
  const columns = await readTask(client, table, id);
  return columns === null ? null : toTask(columns);
}

type Hidden = ColumnsWith<{ readonly by: "internal" }> | "hash";
type Shown = Exclude<ColumnName, Hidden>;

const shown = columnList.filter(({ name, by }) => by !== "internal" && name !== "hash");

function toTask(all: TaskColumns): Task {
  const state = all.get("state");
  if (!isTaskState(state)) throw new PgTaskError("INTERNAL", `unknown state ${JSON.stringify(state)}`);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- valueOf returns what the type of each column says
  const values = Object.fromEntries(
    shown.map((column) => [column.name, valueOf(column, all.get(column.name) ?? null)]),
  ) as Pick<Task, Shown>;
  const columns = Object.fromEntries([...all].filter(([name]) => !isTaskColumn(name)));
  return { ...values, state, claimed: (all.get("owner") ?? null) !== null, columns };
}

/** In an adopted table, a value can be of another type than its column's, or null. */
function valueOf(column: NamedColumn, value: ColumnValue): unknown {
  if (column.name === "errors") return readTryErrors(value);
  if (value === null) return column.nullable === true ? null : fallback(column);
  switch (valueKind(column)) {
    case "json":
      return value;
    case "number":
      return Number(value);
    case "flag":
      return value === true;
    case "ids":
    case "list":
      return Array.isArray(value) ? value.map(String) : null;
    default:
      return typeof value === "object" ? JSON.stringify(value) : String(value);
  }
}

function fallback(column: NamedColumn): unknown {
  const kind = valueKind(column);
  if (kind === "number") return 0;
  return kind === "flag" ? false : "";
}
