/**
 * With users, each task runs in a session of the role in its row. The lane of a task is that role, or null if it runs in
 * a session of the table's owner: its own tasks, and the runs on other servers, of which a session here only keeps the
 * books. The input of a task never runs in a session of another lane.
 */
import { literal } from "../../shared/postgres/quoting.js";
import { mustRunQuery } from "./startRule.sql.js";
import type { TaskTable } from "./taskTable.js";

export function laneOf({ usersOwner }: TaskTable, alias = ""): string {
  if (usersOwner === null) return "NULL::text";
  const runsHere = `(${alias}remote IS NULL OR ${mustRunQuery(alias)})`;
  return `CASE WHEN ${runsHere} AND ${alias}role <> ${literal(usersOwner)} THEN ${alias}role::text END`;
}
