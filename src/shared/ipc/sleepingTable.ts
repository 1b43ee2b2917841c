import type { QueryResultRow } from "pg";

/** What has to be watched while a table has no manager. The SQL needs no parameters and reads only a few rows. */
export interface SleepingTable {
  readonly oid: number;
  /** A notification on one of these channels ends the sleep. */
  readonly channels: readonly string[];
  /** Other processes ask on this channel whether the table's lock is held by one that is alive. */
  readonly rollCall: string;
  /** The query returns one row of the type `SleepCheck`. */
  readonly checkSql: string;
  /** Time until the manager has something to do, in ms. Infinity if nothing is planned. */
  readonly wakeMs: number;
}

export interface SleepCheck extends QueryResultRow {
  /** Whether there is something to do now. */
  readonly due: boolean;
  /** Time until the next planned task becomes due, in ms. Null if none is planned. */
  readonly ms: number | null;
  /** The server's clock, in ms since 1970. */
  readonly clock_ms: number;
}

/**
 * What a manager that fell asleep knew, for the manager that follows it. Valid only if no other manager can have served
 * the table in between. Times are in ms, and were counted by the moment at which the first one ended.
 */
export interface ManagerMemory {
  /** Since when no task has started. */
  readonly quietMs: number;
  /** Time until the plans of rules are compared with the time zone data again. */
  readonly zoneCheckMs: number;
  /** Null if the next manager has to look at everything, as after a start. */
  readonly settled: SettledTable | null;
}

/** A table that is in order, in which nothing is owed, and no task waits for the end of others. */
export interface SettledTable {
  readonly oid: number;
  /** Type of the column `state`, quoted. Null if it is the enum `state` of the table's schema. */
  readonly stateType: string | null;
  /** When the server was started: after that, nothing of this may be true. */
  readonly serverStart: string | null;
  /** Whether a manager of this process has served the table, and has warned of what users should know. */
  readonly wasServed: boolean;
}

/** How long a table without a manager has nothing to do, and what the manager that then starts has to know. */
export interface Rest {
  /** In ms. */
  readonly wakeMs: number;
  readonly memory: ManagerMemory;
}
