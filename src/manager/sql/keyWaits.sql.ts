import type { TaskTable } from "../schema/taskTable.js";
import { isRepeating } from "./fragments.sql.js";

export const hasKey = ({ hasKeys }: TaskTable, alias = ""): string => (hasKeys ? `${alias}key IS NOT NULL` : "false");

export const keyOf = ({ hasKeys }: TaskTable, alias = ""): string => (hasKeys ? `${alias}key` : "NULL::text");

/** SQL condition: the row `w` waits with the key of the row `t`. It is looked up in the index of keys. */
const waitsWithKey = "w.key = ANY (ARRAY[t.key]) AND w.key IS NOT NULL AND w.ready IS NOT NULL AND w.id <> t.id";

/** The other task that waits with the key of the row `t`. */
export const waitingWithKey = ({ qualified, hasKeys }: TaskTable): string =>
  hasKeys ? `(SELECT w.id FROM ${qualified} AS w WHERE ${waitsWithKey})` : "NULL::bigint";

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
  CROSS JOIN LATERAL (SELECT w.id, ${isRepeating("w.")} AS repeats FROM ${qualified} AS w WHERE ${waitsWithKey} FOR NO KEY UPDATE) AS l
  WHERE t.id = ANY (ARRAY(${ids})) AND t.key IS NOT NULL`;
}

export const replacedError = (waiting: string): string =>
  `concat('ERROR:  task ', ${waiting}, ' with the same key takes its place')`;

/** The CTE `key_waits`, whose body is `keyWaits`, contains the id. */
export const isReplaced = (id: string): string => `(${id} IN (SELECT id FROM key_waits)) IS TRUE`;
