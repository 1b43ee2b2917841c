import type { TaskTable } from "../schema/taskTable.js";
import { ownKey } from "../schema/ownKey.sql.js";
import { isRepeating } from "./fragments.sql.js";

export const hasKey = ({ hasKeys }: TaskTable): string => (hasKeys ? "key IS NOT NULL" : "false");

/** Tells keys apart that may not run at the same time. With users, each role has keys of its own. */
export function keyOf({ hasKeys, usersOwner }: TaskTable, alias = ""): string {
  if (!hasKeys) return "NULL::text";
  return usersOwner === null ? `${alias}key` : ownKey(alias);
}

/** SQL condition: the row `w` waits with the key of the row `t`. It is looked up in the index of keys. */
const waitsWithKey = ({ usersOwner }: TaskTable): string =>
  `w.key = ANY (ARRAY[t.key])${usersOwner === null ? "" : " AND w.role = t.role"} AND w.key IS NOT NULL AND w.ready IS NOT NULL AND w.id <> t.id`;

/** The other task that waits with the key of the row `t`. */
export const waitingWithKey = (table: TaskTable): string =>
  table.hasKeys ? `(SELECT w.id FROM ${table.qualified} AS w WHERE ${waitsWithKey(table)})` : "NULL::bigint";

/**
 * SQL of the body of a CTE that finds those of the tasks `ids` with whose key another task waits, and locks these
 * others. Its columns are `id`, `waiting`, the id of the other task, and `repeats`, whether that repeats: as it is in
 * the locked row, and not as a condition on the row would see it, which another client may just have changed.
 */
export function keyWaits(table: TaskTable, ids: string): string {
  const { qualified, hasKeys } = table;
  if (!hasKeys) return "SELECT NULL::bigint AS id, NULL::bigint AS waiting, false AS repeats WHERE false";
  return `
  SELECT t.id, l.id AS waiting, l.repeats FROM ${qualified} AS t
  CROSS JOIN LATERAL (SELECT w.id, ${isRepeating("w.")} AS repeats FROM ${qualified} AS w WHERE ${waitsWithKey(table)} FOR NO KEY UPDATE) AS l
  WHERE t.id = ANY (ARRAY(${ids})) AND t.key IS NOT NULL`;
}

export const replacedError = (waiting: string): string =>
  `concat('ERROR:  task ', ${waiting}, ' with the same key takes its place')`;

/** The CTE `key_waits`, whose body is `keyWaits`, contains the id. */
export const isReplaced = (id: string): string => `(${id} IN (SELECT id FROM key_waits)) IS TRUE`;
