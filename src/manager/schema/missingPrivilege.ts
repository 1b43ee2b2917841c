import { sqlState } from "../../shared/postgres/client.js";
import { PgTaskError, toReport } from "../../shared/errors.js";
import type { TaskTable } from "./taskTable.js";

/** What the server refuses for want of a right, said with the right that is needed; anything else as it is. */
export function missingPrivilege(error: unknown, table: TaskTable): unknown {
  if (sqlState(error) !== "42501") return error;
  return new PgTaskError(
    "SCHEMA_NOT_ALLOWED",
    `${toReport(error).message}: the entry's user needs the rights of the owner of ${table.qualified}`,
    { cause: error },
  );
}
