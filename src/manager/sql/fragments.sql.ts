/** Pieces of SQL that several statements share. */
import type { TaskTable } from "../schema/taskTable.js";
import { mustRunQuery } from "../schema/startRule.sql.js";
import { lockTimeoutMs } from "./lockTimeout.js";

/**
 * SQL condition that is true if the row `t` has this id. The id is compared as an array element, which forces an index
 * lookup. With `=`, a generic plan made while the table was empty might scan an index in order and compare every row.
 */
export const hasId = (id: string): string => `t.id = ANY (ARRAY[${id}])`;

/**
 * SQL of `ready` for rows that are looked up by id. With the bare column, the planner might scan the whole index of
 * `ready` rows.
 */
export const isReady = "coalesce(ready, false)";

/** SQL condition that is true if a row repeats: it has a rule or `repeat`. The alias includes the dot, as in `t.`. */
export const isRepeating = (alias = ""): string => `(${alias}repeat > interval '0' OR ${alias}rule IS NOT NULL)`;

/**
 * SQL condition that is true if `row`, a row that the statement has locked, is the version that the statement sees
 * everywhere else. Another client may have changed the row after the statement began and before it was locked. Then the
 * lock returns the new version, but a successor would be made from the old one.
 *
 * @param row name of a relation with the columns id and version, which is the `ctid` of the locked row
 */
export const isSeen = ({ qualified }: TaskTable, row: string): string =>
  `${row}.version = ANY (ARRAY(SELECT s.ctid FROM ${qualified} AS s WHERE s.id = ANY (ARRAY[${row}.id])))`;

/** SQL condition that is true if other tasks may wait for the end of the row `t`. */
export const isAwaited = "t.plain IS FALSE";

/** SQL condition that is true if the successor of a repeating row is planned when its run starts. */
export const isOverlapping = (alias = ""): string =>
  `(${alias}overlap IS TRUE AND ${isRepeating(alias)} AND NOT ${mustRunQuery(alias)})`;

/** SQL of the time when a task was claimed, in µs since 1970. The ledgers use it to tell the runs of a task apart. */
export const claimTime = (task: string): string => `(date_part('epoch', ${task}.take) * 1000000)::bigint`;

/** SQL condition: the row waits for others, and they have not been looked up yet. It is that of an index. */
export const isToLookUp = "wait > 0 AND ready IS NOT NULL";

/** SQL condition that is always true. Its side effect limits how long the statement waits for row locks. */
export const limitsLockWait = `(SELECT set_config('lock_timeout', '${lockTimeoutMs.brief}ms', true)) IS NOT NULL`;

/** The first due task of a group, as statements return it. */
export interface HeadRow {
  readonly hash: number;
  readonly max: number;
  /** A number if the id column of the table is an integer, otherwise a string. */
  readonly id: string | number;
  /** The task's gap, in ms. 0 if it has none. */
  readonly gap_ms: number;
  /** Whether the task is late. */
  readonly late: boolean;
  readonly paused: boolean;
}

/**
 * SQL condition that is true if the task itself set the state of its row `t` while it ran. The table's trigger marks
 * such rows.
 */
export const isSetByTask = "t.pid < 0";
