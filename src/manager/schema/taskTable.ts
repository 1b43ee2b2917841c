import { createHash } from "node:crypto";
import { identifier } from "../../shared/postgres/quoting.js";

/** Longest name PostgreSQL keeps, in bytes. */
const longestName = 63;

/** A task table and the names of what pg-task makes beside it; unquoted unless said otherwise. */
export interface TaskTable {
  readonly schema: string;
  readonly table: string;
  /** Quoted, for statements. */
  readonly qualified: string;
  /** Type of the column state, quoted; `ensureTable` sets the one that an adopted table has. */
  stateType: string;
  readonly dueIndex: string;
  readonly planIndex: string;
  readonly readyFunction: string;
  readonly readyInsertTrigger: string;
  readonly readyUpdateTrigger: string;
  readonly wakeUp: string;
  /** Notices that a task deletes its own row. */
  readonly ownDeleteTrigger: string;
  /** Which groups are paused. */
  readonly pauseTable: string;
  readonly pauseWakeUp: string;
  readonly keepIndex: string;
  /** The pause table, quoted, for statements. */
  readonly pauses: string;
  /** Function and trigger of an adopted table only, which complete what its rows lack. */
  readonly fill: string;
  /** Runs whose effect was committed; two in turn. */
  readonly ledger1: string;
  readonly ledger2: string;
  /** The same, quoted, for statements. */
  readonly qualifiedLedger1: string;
  readonly qualifiedLedger2: string;
  /** The function that enters a run into a ledger. */
  readonly finish: string;
  /** The same, quoted, for statements. */
  readonly qualifiedFinish: string;
  /** The function that makes a session as new. */
  readonly reset: string;
  /** The same, quoted, for statements. */
  readonly qualifiedReset: string;
  /** The function that reads the setting `pg_task.plan`. */
  readonly planned: string;
  /** The same, quoted, for statements. */
  readonly qualifiedPlanned: string;
  /** Views for users, and the functions that they read. */
  readonly statsView: string;
  readonly statsRows: string;
  readonly errorsView: string;
  readonly errorsRows: string;
  readonly groupsView: string;
  readonly groupsRows: string;
}

export function taskTable(schema: string, table: string): TaskTable {
  return {
    schema,
    table,
    qualified: `${identifier(schema)}.${identifier(table)}`,
    stateType: `${identifier(schema)}.state`,
    dueIndex: objectName(table, "due_idx"),
    planIndex: objectName(table, "plan_idx"),
    readyFunction: objectName(table, "ready"),
    readyInsertTrigger: objectName(table, "ready_insert"),
    readyUpdateTrigger: objectName(table, "ready_update"),
    wakeUp: objectName(table, "wake_up"),
    ownDeleteTrigger: objectName(table, "own_delete"),
    pauseTable: objectName(table, "pause"),
    pauseWakeUp: objectName(table, "pause_wake_up"),
    keepIndex: objectName(table, "keep_idx"),
    pauses: `${identifier(schema)}.${identifier(objectName(table, "pause"))}`,
    fill: objectName(table, "fill"),
    ledger1: objectName(table, "ledger_1"),
    ledger2: objectName(table, "ledger_2"),
    qualifiedLedger1: `${identifier(schema)}.${identifier(objectName(table, "ledger_1"))}`,
    qualifiedLedger2: `${identifier(schema)}.${identifier(objectName(table, "ledger_2"))}`,
    finish: objectName(table, "finish"),
    qualifiedFinish: `${identifier(schema)}.${identifier(objectName(table, "finish"))}`,
    reset: objectName(table, "reset"),
    qualifiedReset: `${identifier(schema)}.${identifier(objectName(table, "reset"))}`,
    planned: objectName(table, "planned"),
    qualifiedPlanned: `${identifier(schema)}.${identifier(objectName(table, "planned"))}`,
    statsView: objectName(table, "stats"),
    statsRows: objectName(table, "stats_rows"),
    errorsView: objectName(table, "errors"),
    errorsRows: objectName(table, "errors_rows"),
    groupsView: objectName(table, "groups"),
    groupsRows: objectName(table, "groups_rows"),
  };
}

/**
 * `TABLE_SUFFIX`; where that is too long for PostgreSQL, which would cut the end off and make
 * several names one, the table's part is cut and a hash of the whole put in its place.
 */
export function objectName(table: string, suffix: string): string {
  const name = `${table}_${suffix}`;
  if (Buffer.byteLength(name) <= longestName) return name;
  const hash = createHash("sha256").update(name).digest("hex").slice(0, 8);
  const room = longestName - Buffer.byteLength(`_${hash}_${suffix}`);
  let kept = "";
  for (const character of table) {
    if (Buffer.byteLength(kept + character) > room) break;
    kept += character;
  }
  return `${kept}_${hash}_${suffix}`;
}
