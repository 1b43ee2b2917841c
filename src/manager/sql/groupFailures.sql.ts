import { literal } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isRepeating } from "./fragments.sql.js";

/**
 * SQL of the group of the row `t` in which its end counts, if it has `suspend`. A schedule counts in its own rows, except
 * if its runs overlap. With users, only the owner's tasks count, because the pause of a group is for all roles.
 */
export const countedGroup = ({ usersOwner }: TaskTable): string =>
  `CASE WHEN t.suspend > 0 AND (NOT ${isRepeating("t.")} OR t.overlap IS TRUE)${usersOwner === null ? "" : ` AND t.role = ${literal(usersOwner)}`} THEN t."group" END`;

/**
 * SQL of a query that counts the ends of tasks, in their order, and returns no rows.
 *
 * @param ended SQL of a query with the columns id, stop, failed, suspend, tell and counted (`countedGroup`)
 */
export const countFailures = ({ qualifiedCountFailure }: TaskTable, ended: string): string =>
  `SELECT c.id FROM (SELECT e.id, ${qualifiedCountFailure}(e.id, e.counted::text, e.failed, e.suspend, e.tell) AS paused
    FROM (${ended} ORDER BY stop, id) AS e WHERE e.counted IS NOT NULL) AS c WHERE c.paused IS NULL`;
