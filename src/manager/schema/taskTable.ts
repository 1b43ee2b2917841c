import { createHash } from "node:crypto";
import { identifier } from "../../shared/postgres/quoting.js";

/** Maximum length of a name, in bytes. PostgreSQL truncates longer names. */
export const maxNameBytes = 63;

/** The objects that belong to a task table, by the part of their name that follows that of the table. */
const suffixes = {
  dueIndex: "due_idx",
  planIndex: "plan_idx",
  keepIndex: "keep_idx",
  readyFunction: "ready",
  readyInsertTrigger: "ready_insert",
  readyUpdateTrigger: "ready_update",
  wakeUp: "wake_up",
  /** Trigger that records that a task has deleted its own row. */
  ownDeleteTrigger: "own_delete",
  pauseTable: "pause",
  pauseWakeUp: "pause_wake_up",
  /** Function and trigger that fill in columns that are null. Only adopted tables have them. */
  fill: "fill",
  /** The two ledgers of proofs, used in turn. */
  ledger1: "ledger_1",
  ledger2: "ledger_2",
  /** Says where the task table is at home, so that a copy is recognized. */
  homeTable: "home",
  homeChanged: "home_changed",
  /** Writes a proof into a ledger. */
  finish: "finish",
  /** Resets a session between two tasks. */
  reset: "reset",
  /** Turns the setting `pg_task.plan` into a time. */
  planned: "planned",
  /** Check the optional columns, and plan the first run of a rule. */
  optionsFunction: "options",
  optionsInsertTrigger: "options_insert",
  optionsUpdateTrigger: "options_update",
  /** The trigger function for other tables. */
  asyncFunction: "async",
  chainFunction: "chain",
  /** The functions that change tasks, which users call. */
  scheduleFunction: "schedule",
  unscheduleFunction: "unschedule",
  pauseFunction: "pause",
  resumeFunction: "resume",
  runFunction: "run",
  stopFunction: "stop",
  retryFunction: "retry",
  signalFunction: "signal",
  waitProcedure: "wait",
  /** Views for users, and the functions that these views read. */
  statsView: "stats",
  statsRows: "stats_rows",
  errorsView: "errors",
  errorsRows: "errors_rows",
  groupsView: "groups",
  groupsRows: "groups_rows",
  schedulesView: "schedules",
  schedulesRows: "schedules_rows",
  schedulesIndex: "schedules_idx",
  /** Which tasks wait for which. */
  dependencyTable: "after",
  dependencyIndex: "after_task_idx",
  /** The chains that run alone, or are the next to do so, and the waiting tasks with `alone`. */
  turnTable: "turn",
  aloneIndex: "alone_idx",
  /** The ended rows whose successors the server has rejected so far. */
  owedTable: "owed",
  /** Failures in a row of groups, the function that counts them, and the one that tells the manager. */
  failureTable: "group_failures",
  countFailure: "count_failure",
  suspended: "suspended",
  /** What webhooks are told, what they have not accepted yet, and the triggers that write it. */
  webhookTable: "webhooks",
  outboxTable: "outbox",
  outboxIndex: "outbox_idx",
  webhookFunction: "webhook",
  webhookUpdateTrigger: "webhook_update",
  webhookDeleteTrigger: "webhook_delete",
  /** The tasks whose predecessors have to be looked up. */
  holdIndex: "hold_idx",
  keyIndex: "key_idx",
  /** Of tables whose tasks run as their users: the roles, their logins, and who may write whose tasks. */
  roleTable: "role",
  roleFunction: "role_check",
  rolePolicy: "own",
  authorFunction: "author",
  authorInsertTrigger: "author_insert",
  authorUpdateTrigger: "author_update",
} as const;

const qualifiedObjects = {
  pauses: "pauseTable",
  turns: "turnTable",
  qualifiedFill: "fill",
  qualifiedLedger1: "ledger1",
  qualifiedLedger2: "ledger2",
  qualifiedHome: "homeTable",
  qualifiedFinish: "finish",
  qualifiedReset: "reset",
  qualifiedPlanned: "planned",
  qualifiedOptions: "optionsFunction",
  qualifiedAsync: "asyncFunction",
  qualifiedChain: "chainFunction",
  qualifiedSchedule: "scheduleFunction",
  qualifiedUnschedule: "unscheduleFunction",
  qualifiedPause: "pauseFunction",
  qualifiedResume: "resumeFunction",
  qualifiedRun: "runFunction",
  qualifiedStop: "stopFunction",
  qualifiedRetry: "retryFunction",
  qualifiedSignal: "signalFunction",
  qualifiedWait: "waitProcedure",
  qualifiedSchedules: "schedulesView",
  qualifiedSchedulesRows: "schedulesRows",
  qualifiedDependencies: "dependencyTable",
  qualifiedOwed: "owedTable",
  qualifiedCountFailure: "countFailure",
  qualifiedSuspended: "suspended",
  qualifiedRoles: "roleTable",
  qualifiedWebhooks: "webhookTable",
  qualifiedOutbox: "outboxTable",
} as const satisfies Readonly<Record<string, keyof typeof suffixes>>;

type ObjectNames = Readonly<Record<keyof typeof suffixes, string>>;
type QualifiedNames = Readonly<Record<keyof typeof qualifiedObjects, string>>;

/** A task table and the names of the objects that belong to it. Names are unquoted unless noted otherwise. */
export interface TaskTable extends ObjectNames, QualifiedNames {
  readonly schema: string;
  readonly table: string;
  /** Schema and name, quoted for use in statements. */
  readonly qualified: string;
  readonly logName: string;
  /** Type of the column `state`, quoted. If an adopted table uses another type, `ensureTable` replaces this value. */
  stateType: string;
  /** Whether the table has the index of keys, without which keys are refused. `ensureTable` replaces this value. */
  hasKeys: boolean;
  /** The table's owner, if each task runs as the role in its row. `ensureTable` replaces this value. */
  usersOwner: string | null;
  /** The oid of the table that a manager has served under this name; null if none has. The manager replaces this value. */
  servedOid: number | null;
}

export function taskTable(schema: string, table: string): TaskTable {
  const objects = mapValues(suffixes, (suffix) => objectName(table, suffix));
  return {
    schema,
    table,
    qualified: `${identifier(schema)}.${identifier(table)}`,
    logName: `${schema}.${table}`,
    stateType: `${identifier(schema)}.state`,
    hasKeys: true,
    usersOwner: null,
    servedOid: null,
    ...objects,
    ...mapValues(qualifiedObjects, (object) => `${identifier(schema)}.${identifier(objects[object])}`),
  };
}

function mapValues<Key extends string, Value>(
  from: Readonly<Record<Key, Value>>,
  map: (value: Value) => string,
): Record<Key, string> {
  const entries: string[][] = Object.entries<Value>(from).map(([key, value]) => [key, map(value)]);
  return Object.fromEntries(entries);
}

/** The names of a table's objects, always in the same order. */
export const objectNames = (table: string): string[] =>
  Object.values(suffixes).map((suffix) => objectName(table, suffix));

/** Names that PostgreSQL would truncate, so that several could become equal, contain a hash of the full name. */
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
