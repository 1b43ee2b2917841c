import { createHash } from "node:crypto";
import { identifier } from "../../shared/postgres/quoting.js";

/** Maximum length of a name, in bytes. PostgreSQL truncates longer names. */
export const maxNameBytes = 63;

/** A task table and the names of the objects that belong to it. Names are unquoted unless noted otherwise. */
export interface TaskTable {
  readonly schema: string;
  readonly table: string;
  /** Schema and name of the table, quoted for use in statements. */
  readonly qualified: string;
  /** The table as the log names it, without quotes. */
  readonly logName: string;
  /** Type of the column `state`, quoted. If an adopted table uses another type, `ensureTable` replaces this value. */
  stateType: string;
  /** Whether the table has the index of keys, without which keys are refused. `ensureTable` replaces this value. */
  hasKeys: boolean;
  /** The oid of the table that a manager has served under this name; null if none has. The manager replaces this value. */
  servedOid: number | null;
  readonly dueIndex: string;
  readonly planIndex: string;
  readonly readyFunction: string;
  readonly readyInsertTrigger: string;
  readonly readyUpdateTrigger: string;
  readonly wakeUp: string;
  /** Trigger that records that a task has deleted its own row. */
  readonly ownDeleteTrigger: string;
  /** Table of the paused groups. */
  readonly pauseTable: string;
  readonly pauseWakeUp: string;
  readonly keepIndex: string;
  /** The pause table, quoted for use in statements. */
  readonly pauses: string;
  /** Name of the function and of the trigger that fill in columns that are null. Only adopted tables have them. */
  readonly fill: string;
  /** The two ledgers, which hold proofs (records that a run was committed). They are used in turn. */
  readonly ledger1: string;
  readonly ledger2: string;
  /** The two ledgers, quoted for use in statements. */
  readonly qualifiedLedger1: string;
  readonly qualifiedLedger2: string;
  /** Table that says where the task table is at home, so that a copy is recognized. */
  readonly homeTable: string;
  /** Function and trigger that tell the manager of a change of the home table. */
  readonly homeChanged: string;
  /** The home table, quoted for use in statements. */
  readonly qualifiedHome: string;
  /** The function that writes a proof (the record that a run was committed) into a ledger. */
  readonly finish: string;
  /** The function `finish`, quoted for use in statements. */
  readonly qualifiedFinish: string;
  /** The function that resets a session between two tasks. */
  readonly reset: string;
  /** The function `reset`, quoted for use in statements. */
  readonly qualifiedReset: string;
  /** The function that turns the setting `pg_task.plan` into a time. */
  readonly planned: string;
  /** The function `planned`, quoted for use in statements. */
  readonly qualifiedPlanned: string;
  /** The function and the triggers that check the optional columns and plan the first run of a rule. */
  readonly optionsFunction: string;
  readonly optionsInsertTrigger: string;
  readonly optionsUpdateTrigger: string;
  /** The trigger function for other tables, which plans a task when one of their rows is changed. */
  readonly asyncFunction: string;
  /** The function `asyncFunction`, quoted for use in statements. */
  readonly qualifiedAsync: string;
  /** The function that plans tasks that run one after another. */
  readonly chainFunction: string;
  /** The function `chainFunction`, quoted for use in statements. */
  readonly qualifiedChain: string;
  /** Views for users, and the functions that these views read. */
  readonly statsView: string;
  readonly statsRows: string;
  readonly errorsView: string;
  readonly errorsRows: string;
  readonly groupsView: string;
  readonly groupsRows: string;
  readonly schedulesView: string;
  readonly schedulesRows: string;
  /** Index of the rows of schedules. */
  readonly schedulesIndex: string;
  /** Table of the dependencies: which tasks wait for which. */
  readonly dependencyTable: string;
  readonly dependencyIndex: string;
  /** The table of dependencies, quoted for use in statements. */
  readonly qualifiedDependencies: string;
  /** Table of the ended rows whose successors the server has rejected so far. */
  readonly owedTable: string;
  /** The table of owed successors, quoted for use in statements. */
  readonly qualifiedOwed: string;
  /** Index of the tasks whose predecessors have to be looked up. */
  readonly holdIndex: string;
  /** Unique index of the keys of waiting tasks. */
  readonly keyIndex: string;
}

export function taskTable(schema: string, table: string): TaskTable {
  return {
    schema,
    table,
    qualified: `${identifier(schema)}.${identifier(table)}`,
    logName: `${schema}.${table}`,
    stateType: `${identifier(schema)}.state`,
    hasKeys: true,
    servedOid: null,
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
    homeTable: objectName(table, "home"),
    homeChanged: objectName(table, "home_changed"),
    qualifiedHome: `${identifier(schema)}.${identifier(objectName(table, "home"))}`,
    finish: objectName(table, "finish"),
    qualifiedFinish: `${identifier(schema)}.${identifier(objectName(table, "finish"))}`,
    reset: objectName(table, "reset"),
    qualifiedReset: `${identifier(schema)}.${identifier(objectName(table, "reset"))}`,
    planned: objectName(table, "planned"),
    qualifiedPlanned: `${identifier(schema)}.${identifier(objectName(table, "planned"))}`,
    optionsFunction: objectName(table, "options"),
    optionsInsertTrigger: objectName(table, "options_insert"),
    optionsUpdateTrigger: objectName(table, "options_update"),
    asyncFunction: objectName(table, "async"),
    qualifiedAsync: `${identifier(schema)}.${identifier(objectName(table, "async"))}`,
    chainFunction: objectName(table, "chain"),
    qualifiedChain: `${identifier(schema)}.${identifier(objectName(table, "chain"))}`,
    statsView: objectName(table, "stats"),
    statsRows: objectName(table, "stats_rows"),
    errorsView: objectName(table, "errors"),
    errorsRows: objectName(table, "errors_rows"),
    groupsView: objectName(table, "groups"),
    groupsRows: objectName(table, "groups_rows"),
    schedulesView: objectName(table, "schedules"),
    schedulesRows: objectName(table, "schedules_rows"),
    schedulesIndex: objectName(table, "schedules_idx"),
    dependencyTable: objectName(table, "after"),
    dependencyIndex: objectName(table, "after_task_idx"),
    qualifiedDependencies: `${identifier(schema)}.${identifier(objectName(table, "after"))}`,
    owedTable: objectName(table, "owed"),
    qualifiedOwed: `${identifier(schema)}.${identifier(objectName(table, "owed"))}`,
    holdIndex: objectName(table, "hold_idx"),
    keyIndex: objectName(table, "key_idx"),
  };
}

/**
 * Returns the name `TABLE_SUFFIX`. PostgreSQL would truncate a name that is too long, and several names could become
 * equal. In such a name, the table's part is therefore truncated and a hash of the full name is inserted.
 */
export function objectName(table: string, suffix: string): string {
  const name = `${table}_${suffix}`;
  if (Buffer.byteLength(name) <= maxNameBytes) return name;
  const hash = createHash("sha256").update(name).digest("hex").slice(0, 8);
  const maxBytes = maxNameBytes - Buffer.byteLength(`_${hash}_${suffix}`);
  let prefix = "";
  for (const character of table) {
    if (Buffer.byteLength(prefix + character) > maxBytes) break;
    prefix += character;
  }
  return `${prefix}_${hash}_${suffix}`;
}
