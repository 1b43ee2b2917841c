import { availableParallelism } from "node:os";
import { maxInt } from "../postgres/serverLimits.js";

/**
 * Where a value can be given. "entry" means that an entry can set the parameter by its short key, which has no prefix.
 */
export type Level = "file" | "database" | "role" | "session" | "entry";

/**
 * The type of a parameter. `char` is one ASCII character or none, `name` is a PostgreSQL identifier, `expression` is
 * SQL, `sqlstates` is a list of SQLSTATEs and classes, `hosts` is a list of host names, and `secret` is a token.
 */
type ParameterType =
  | "bool"
  | "int"
  | "bigint"
  | "interval"
  | "char"
  | "text"
  | "name"
  | "expression"
  | "size"
  | "level"
  | "listen"
  | "hosts"
  | "sqlstates"
  | "secret"
  | "json";

export interface Parameter {
  readonly name: string;
  /** Another name for the same parameter. */
  readonly alias?: string;
  readonly type: ParameterType;
  /** The default, as a user would write it in the file. */
  readonly default: boolean | number | string | readonly unknown[];
  /**
   * What the documentation shows in place of the default if the default depends on the machine or needs an explanation.
   */
  readonly defaultText?: string;
  /** Inclusive bounds. For an interval, `min: 0` means that negative values are not allowed. */
  readonly min?: number;
  readonly max?: number;
  /** Whether `min` itself is excluded. */
  readonly aboveMin?: true;
  readonly unit?: "ms" | "s" | "bytes";
  readonly levels: readonly Level[];
  readonly meaning: string;
}

const file = ["file"] as const;
const stored = ["file", "database"] as const;
const table = ["file", "database", "role"] as const;
const entry = ["file", "database", "role", "entry"] as const;
const task = ["file", "database", "role", "session"] as const;

/** Values of `pg_conf.log`. */
export const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;

const positive = { min: 1, max: maxInt } as const;
const natural = { min: 0, max: maxInt } as const;

/**
 * Every parameter. The type `FileParameters`, the JSON Schema and a table in the documentation are derived from this
 * list.
 */
export const parameters = [
  {
    name: "pg_task.delete",
    type: "bool",
    default: true,
    levels: task,
    meaning: "delete the row when output and error are both null",
  },
  {
    name: "pg_task.drift",
    type: "bool",
    default: false,
    levels: task,
    meaning: "repeat relative to the stop instead of the plan",
  },
  {
    name: "pg_task.header",
    type: "bool",
    default: true,
    levels: task,
    meaning: "write column names to output",
  },
  {
    name: "pg_task.string",
    type: "bool",
    default: true,
    levels: task,
    meaning: "quote only strings",
  },
  {
    name: "pg_task.save",
    type: "bool",
    default: false,
    levels: task,
    meaning: "keep session state between the tasks of one session",
  },
  {
    name: "pg_task.atomic",
    type: "bool",
    default: true,
    levels: task,
    meaning: "commit effect and DONE in one transaction if the SQL allows it",
  },
  {
    name: "pg_task.count",
    type: "int",
    default: 0,
    ...natural,
    levels: task,
    meaning: "tasks that one session runs before it ends",
  },
  {
    name: "pg_task.max",
    type: "int",
    default: 0,
    min: -maxInt - 1,
    max: maxInt,
    levels: task,
    meaning: "how many other tasks of its group may run at the same time; negative: pause in ms",
  },
  {
    name: "pg_task.active",
    type: "interval",
    default: "1 hour",
    min: 0,
    aboveMin: true,
    levels: task,
    meaning: "how long after `plan` the task may still start",
  },
  {
    name: "pg_task.live",
    type: "interval",
    default: "0 sec",
    min: 0,
    levels: task,
    meaning: "lifetime of one session",
  },
  {
    name: "pg_task.gap",
    type: "interval",
    default: "0 sec",
    min: 0,
    levels: task,
    meaning: "least time between two starts of a group",
  },
  {
    name: "pg_task.repeat",
    type: "interval",
    default: "0 sec",
    min: 0,
    levels: task,
    meaning: "interval after which the task repeats; 0 means never",
  },
  {
    name: "pg_task.keep",
    type: "interval",
    default: "0 sec",
    min: 0,
    levels: task,
    meaning: "how long a finished row is kept; 0 means forever",
  },
  {
    name: "pg_task.timeout",
    type: "interval",
    default: "0 sec",
    min: 0,
    levels: task,
    meaning: "maximum run time; 0 means no limit",
  },
  {
    name: "pg_task.delimiter",
    type: "char",
    default: "\t",
    defaultText: "tab",
    levels: task,
    meaning: "separator between columns in output",
  },
  {
    name: "pg_task.escape",
    type: "char",
    default: "",
    defaultText: "empty",
    levels: task,
    meaning: "escape character in output",
  },
  {
    name: "pg_task.quote",
    type: "char",
    default: "",
    defaultText: "empty",
    levels: task,
    meaning: "quote character in output",
  },
  { name: "pg_task.group", type: "text", default: "group", levels: task, meaning: "group name" },
  {
    name: "pg_task.null",
    type: "text",
    default: "\\N",
    levels: task,
    meaning: "string that stands for null in output",
  },
  {
    name: "pg_task.zone",
    type: "text",
    default: "",
    defaultText: "empty",
    levels: task,
    meaning: "time zone of rules that name none; empty means the zone of the database",
  },
  {
    name: "pg_task.plan",
    type: "expression",
    default: "statement_timestamp()",
    levels: file,
    meaning: "default of the column `plan`, an SQL expression",
  },
  {
    name: "pg_task.retry",
    type: "int",
    default: 0,
    ...natural,
    levels: task,
    meaning: "how often a task is tried again after an error",
  },
  {
    name: "pg_task.backoff",
    type: "interval",
    default: "1 sec",
    min: 0,
    aboveMin: true,
    levels: task,
    meaning: "pause before the first retry; it doubles with each further retry",
  },
  {
    name: "pg_task.ceiling",
    type: "interval",
    default: "1 hour",
    min: 0,
    aboveMin: true,
    levels: table,
    meaning: "longest pause before a retry",
  },
  {
    name: "pg_task.sqlstate",
    type: "sqlstates",
    default: "!42,!0A",
    levels: table,
    meaning: "errors that are retried, if the task itself does not say so; `!` marks those that are not",
  },
  {
    name: "pg_task.output",
    type: "size",
    default: "64MB",
    min: 1,
    max: maxInt,
    unit: "bytes",
    levels: table,
    meaning: "maximum output kept per task",
  },
  {
    name: "pg_task.crash",
    type: "int",
    default: 3,
    ...positive,
    levels: table,
    meaning: "number of crashes of its thread or backend after which a task becomes FAIL",
  },
  {
    name: "pg_task.run",
    type: "int",
    default: maxInt,
    ...positive,
    levels: entry,
    meaning: "maximum tasks of one table running at once",
  },
  {
    name: "pg_task.fetch",
    type: "int",
    default: 100,
    ...positive,
    levels: table,
    meaning: "maximum rows of one claim statement",
  },
  {
    name: "pg_task.limit",
    type: "int",
    default: 1000,
    ...positive,
    levels: table,
    meaning: "maximum tasks claimed in one cycle",
  },
  {
    name: "pg_task.sleep",
    type: "int",
    default: 1000,
    ...positive,
    unit: "ms",
    levels: entry,
    meaning: "how often the table is checked",
  },
  {
    name: "pg_task.reset",
    type: "interval",
    default: "1 hour",
    min: 0,
    aboveMin: true,
    levels: entry,
    meaning: "how often to look for orphaned tasks, in addition to the immediate checks",
  },
  {
    name: "pg_task.idle",
    alias: "pg_work.idle",
    type: "int",
    default: 60,
    ...positive,
    levels: table,
    meaning: "cycles without tasks before deep sleep",
  },
  {
    name: "pg_task.schema",
    type: "name",
    default: "public",
    levels: entry,
    meaning: "schema of the task table",
  },
  {
    name: "pg_task.table",
    type: "name",
    default: "task",
    levels: entry,
    meaning: "name of the task table",
  },
  {
    name: "pg_task.home",
    type: "text",
    default: "",
    defaultText: "empty",
    levels: file,
    meaning: "name of the place, such as `production`; a table that is at home under another name starts nothing",
  },
  {
    name: "pg_task.data",
    type: "name",
    default: "postgres",
    levels: file,
    meaning: "database of the entries that name neither database nor user",
  },
  {
    name: "pg_task.user",
    type: "name",
    default: "postgres",
    levels: file,
    meaning: "user of the entries that name neither database nor user",
  },
  {
    name: "pg_task.create",
    type: "bool",
    default: false,
    defaultText: "`false`; `true` in a file that is an array",
    levels: file,
    meaning: "whether to create the missing role and database of an entry that does not say `create`",
  },
  {
    name: "pg_task.default",
    type: "text",
    default: "",
    defaultText: "the first entry",
    levels: file,
    meaning: "the entry whose table commands use if they are not told which: its number, key, database or table",
  },
  {
    name: "pg_task.json",
    type: "json",
    default: [],
    defaultText: "one entry: the connection's own database and user",
    levels: file,
    meaning: "the entries, one for each task table",
  },
  {
    name: "pg_task.id",
    type: "bigint",
    default: 0,
    levels: ["session"],
    meaning: "id of the running task, read only",
  },
  {
    name: "pg_conf.max",
    type: "int",
    default: 64,
    ...positive,
    levels: file,
    meaning: "maximum executor sessions of this process",
  },
  {
    name: "pg_conf.reserve",
    type: "int",
    default: 2,
    ...natural,
    levels: file,
    meaning: "sessions, at most a quarter of a table's, that groups with running tasks leave to other groups",
  },
  {
    name: "pg_conf.close",
    type: "int",
    default: 60_000,
    ...positive,
    unit: "ms",
    levels: stored,
    meaning: "how long a manager may take to acknowledge its parameters, or go without a heartbeat",
  },
  {
    name: "pg_work.close",
    type: "int",
    default: 60_000,
    ...positive,
    unit: "ms",
    levels: stored,
    meaning: "how long a started executor may take to acknowledge its parameters",
  },
  {
    name: "pg_conf.fetch",
    type: "int",
    default: 10,
    ...positive,
    levels: stored,
    meaning: "entries started at once",
  },
  {
    name: "pg_work.fetch",
    type: "int",
    default: 100,
    ...positive,
    levels: stored,
    meaning: "rows of one expiry, rescue or pruning statement",
  },
  {
    name: "pg_conf.restart",
    type: "int",
    default: 60,
    ...positive,
    unit: "s",
    levels: stored,
    meaning: "maximum delay before a failed manager is restarted",
  },
  {
    name: "pg_work.restart",
    type: "int",
    default: 60,
    ...positive,
    unit: "s",
    levels: stored,
    meaning: "maximum delay before a failed executor is restarted",
  },
  {
    name: "pg_conf.grace",
    type: "int",
    default: 30_000,
    ...natural,
    unit: "ms",
    levels: file,
    meaning: "how long running tasks may take to finish on shutdown",
  },
  {
    name: "pg_conf.frozen",
    type: "int",
    default: 30_000,
    ...natural,
    unit: "ms",
    levels: file,
    meaning:
      "how long a process may leave a standby's question unanswered before its connections are ended, 0 for ever",
  },
  {
    name: "pg_conf.threads",
    type: "int",
    // One core is left for the manager's thread, which is as busy as an executor thread.
    default: Math.max(1, availableParallelism() - 1),
    defaultText: "the number of cores minus one, at least 1",
    min: 1,
    max: 1024,
    levels: file,
    meaning: "maximum executor threads of one manager",
  },
  {
    name: "pg_conf.name",
    type: "text",
    default: "pg_task",
    min: 1,
    levels: file,
    meaning: "name of the cluster: processes with the same name and control database form one cluster",
  },
  {
    name: "pg_conf.log",
    type: "level",
    default: "info",
    levels: file,
    meaning: "lowest level that is logged",
  },
  {
    name: "pg_http.listen",
    type: "listen",
    default: "",
    defaultText: "off; with the embedded server 127.0.0.1:8765, or a free port",
    levels: file,
    meaning: "address of the page, the metrics and the health checks",
  },
  {
    name: "pg_http.token",
    type: "secret",
    default: "",
    defaultText: "on loopback only: a random token at each start",
    levels: file,
    meaning: "token that the page and its API require",
  },
  {
    name: "pg_http.readonly",
    type: "secret",
    default: "",
    defaultText: "none",
    levels: file,
    meaning: "another token, which reads everything and changes nothing",
  },
  {
    name: "pg_http.hosts",
    type: "hosts",
    default: "",
    defaultText: "on loopback only the machine itself, otherwise every name",
    levels: file,
    meaning: "host names by which the page is reached, with commas between them",
  },
] as const satisfies readonly Parameter[];

export type ParameterName = (typeof parameters)[number]["name"];

/** The parameters that a file can set, except `pg_task.json`. */
type FileParameter = Exclude<
  Extract<(typeof parameters)[number], { levels: readonly ["file", ...Level[]] }>,
  { type: "json" }
>;

type ValueOf<Type extends ParameterType> = Type extends "bool"
  ? boolean
  : Type extends "int" | "size"
    ? number
    : Type extends "level"
      ? (typeof logLevels)[number]
      : string;

/**
 * Values of the file's parameters, including defaults. Sizes are in bytes. Intervals are text that PostgreSQL
 * interprets. `pg_http.listen` can also be `auto`, which is the default with the embedded server and is not allowed in
 * a file. `pg_http.token` and `pg_http.readonly` are secret and are empty in entries.
 */
export type FileParameters = {
  readonly [P in FileParameter as P["name"]]: ValueOf<P["type"]>;
};
