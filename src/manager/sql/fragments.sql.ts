/** Pieces of SQL that several statements share. */
import type { TaskTable } from "../schema/taskTable.js";
import { mustRunQuery } from "../schema/startRule.sql.js";
import { lockTimeoutMs } from "./lockTimeout.js";

/** Forces an index lookup. With `=`, a generic plan made while the table was empty might compare every row. */
export const hasId = (id: string): string => `t.id = ANY (ARRAY[${id}])`;

/** For rows that are looked up by id. With the bare column, the planner might scan the whole index of `ready` rows. */
export const isReady = "coalesce(ready, false)";

/** The alias includes the dot, as in `t.`. */
export const isRepeating = (alias = ""): string => `(${alias}repeat > interval '0' OR ${alias}rule IS NOT NULL)`;

/**
 * SQL condition: the row `l`, which the statement has locked, with its `ctid` as `version`, is what the statement sees
 * everywhere else. If another client has changed it in between, a successor would be made from the old version.
 */
export const isSeen = ({ qualified }: TaskTable): string =>
  `l.version = ANY (ARRAY(SELECT s.ctid FROM ${qualified} AS s WHERE s.id = ANY (ARRAY[l.id])))`;

/** SQL condition: other tasks may wait for the end of the row `t`. */
export const isAwaited = "t.plain IS FALSE";

/** SQL condition: the successor is planned when the run starts. */
export const isOverlapping = (alias = ""): string =>
  `(${alias}overlap IS TRUE AND ${isRepeating(alias)} AND NOT ${mustRunQuery(alias)})`;

/** In µs since 1970. The ledgers tell the runs of a task apart by it. */
export const claimTime = (task: string): string => `(date_part('epoch', ${task}.take) * 1000000)::bigint`;

/** The row waits for others, and they have not been looked up yet. The condition is that of an index. */
export const isToLookUp = "wait > 0 AND ready IS NOT NULL";

/** The row waits, and is to run alone. The condition is that of an index. */
export const isAlone = "alone IS NOT NULL AND ready IS NOT NULL";

/** Always true. Its side effect limits how long the statement waits for row locks. */
export const limitsLockWait = `(SELECT set_config('lock_timeout', '${lockTimeoutMs.brief}ms', true)) IS NOT NULL`;

export interface HeadRow {
  readonly hash: number;
  readonly max: number;
  /** A number if the id column of the table is an integer. */
  readonly id: string | number;
  /** 0 if it has none. */
  readonly gap_ms: number;
  readonly late: boolean;
  readonly paused: boolean;
}

/** The task itself set the state of its row while it ran, which the table's trigger has marked. */
export const isSetByTask = "t.pid < 0";
