import type { TaskTable } from "../manager/schema/taskTable.js";
import { describeValue } from "../shared/describeValue.js";
import { errorMessage, PgTaskError, withMessage } from "../shared/errors.js";
import { sqlState, type Queryable } from "../shared/postgres/client.js";
import { findTakenKey, type NewRow } from "../tasks/commands/addTask.js";
import { readKeyHolder } from "../tasks/queries/tasksWithKey.js";
import type { TaskFilter } from "../tasks/types.js";

/** A text that is no time, one that is out of range, an offset that is out of range, and an unknown time zone. */
const invalidTime = new Set(["22007", "22008", "22009", "22023"]);

/** Names both options if the server does not say which time it cannot read. Returns any other error unchanged. */
export function nameInvalidTime(error: unknown, { since, until }: TaskFilter): unknown {
  const state = sqlState(error);
  if (state === null || !invalidTime.has(state)) return error;
  const given = Object.entries({ since, until }).flatMap(([name, value]) =>
    typeof value === "string" ? [{ name, value }] : [],
  );
  const message = errorMessage(error);
  const quoted = given.filter(({ value }) => message.includes(JSON.stringify(value)));
  const names = (quoted.length > 0 ? quoted : given).map(({ name }) => name);
  if (names.length === 0) return error;
  return new PgTaskError("USAGE", `invalid ${names.join(" or ")}: ${message} (SQLSTATE ${state})`, {
    cause: error,
    sqlState: state,
  });
}

/** Says which task has a taken key, which is unknown in a transaction, since the error has aborted it. */
export async function nameKeyHolder(
  client: Queryable,
  table: TaskTable,
  rows: readonly NewRow[],
  error: unknown,
): Promise<unknown> {
  if (!(error instanceof PgTaskError) || error.code !== "TASK_KEY_TAKEN") return error;
  const key = findTakenKey(error.cause, rows);
  const withKey = rows.filter(({ columns }) => columns.get("key") === key);
  const role = withKey[0]?.columns.get("role") ?? null;
  const id = key === null ? null : await readKeyHolder(client, table, key, role);
  const isShared = key !== null && withKey.length > 1;
  const named = key === null ? "this key" : `the key ${describeValue(key)}`;
  const unknown = isShared ? `several of the tasks have ${named}` : `another task waits with ${named}`;
  const holder = id === null ? unknown : `task ${id} waits with ${named}`;
  return withMessage(
    error,
    `${error.message}: ${holder}; if one task is enough, ifKeyTaken: "join" or "skip" makes this no error`,
  );
}
