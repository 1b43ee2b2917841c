import { availableParallelism } from "node:os";
import { maxInt } from "../postgres/serverLimits.js";

/** "entry": an entry can set it by its short key. */
type Level = "file" | "database" | "role" | "session" | "entry";

type ParameterType =
  | "bool"
  | "int"
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
  readonly alias?: string;
  readonly type: ParameterType;
  readonly default: boolean | number | string | readonly unknown[];
  /** What the documentation shows as the default if it depends on the machine or needs an explanation. */
  readonly defaultText?: string;
  /** Inclusive bounds. For an interval, `min: 0` refuses negative values. */
  readonly min?: number;
  readonly max?: number;
  /** Whether `min` itself is excluded. */
  readonly aboveMin?: true;
  readonly unit?: "ms" | "s" | "bytes";
  readonly levels: readonly Level[];
  /** Managers do not use it, so a change of it is no change of an entry. */
  readonly supervisorOnly?: true;
  readonly meaning: string;
}

const file = ["file"] as const;
const stored = ["file", "database"] as const;
const table = ["file", "database", "role"] as const;
const entry = ["file", "database", "role", "entry"] as const;
const task = ["file", "database", "role", "session"] as const;

export const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;

/** Returns a function that makes a parameter of a kind with a default. */
const kind =
  <const Traits extends Pick<Parameter, "type" | "min" | "max" | "unit" | "aboveMin">>(traits: Traits) =>
  (value: Parameter["default"]): Traits & Pick<Parameter, "default"> => ({ ...traits, default: value });

const bool = kind({ type: "bool" });
const positive = kind({ type: "int", min: 1, max: maxInt });
const positiveMs = kind({ type: "int", min: 1, max: maxInt, unit: "ms" });
const positiveS = kind({ type: "int", min: 1, max: maxInt, unit: "s" });
const natural = kind({ type: "int", min: 0, max: maxInt });
const naturalMs = kind({ type: "int", min: 0, max: maxInt, unit: "ms" });
const interval = kind({ type: "interval", min: 0 });
const positiveInterval = kind({ type: "interval", min: 0, aboveMin: true });
const text = kind({ type: "text" });
const name = kind({ type: "name" });
const char = kind({ type: "char" });
const secret = kind({ type: "secret" });

/**
 * Every parameter. The types, the schema and the checks of the file, the lists of parameters of some kind and a table in
 * the documentation are derived from this table.
 */
const catalogue = {
  "pg_task.delete": { ...bool(true), levels: task, meaning: "delete the row when output and error are both null" },
  "pg_task.drift": { ...bool(false), levels: task, meaning: "repeat relative to the stop instead of the plan" },
  "pg_task.header": { ...bool(true), levels: task, meaning: "write column names to output" },
  "pg_task.string": { ...bool(true), levels: task, meaning: "quote only strings" },
  "pg_task.save": { ...bool(false), levels: task, meaning: "keep session state between the tasks of one session" },
  "pg_task.atomic": {
    ...bool(true),
    levels: task,
    meaning: "commit effect and DONE in one transaction if the SQL allows it",
  },
  "pg_task.count": { ...natural(0), levels: task, meaning: "tasks that one session runs before it ends" },
  "pg_task.max": {
    type: "int",
    min: -maxInt - 1,
    max: maxInt,
    default: 0,
    levels: task,
    meaning: "how many other tasks of its group may run at the same time; negative: pause in ms",
  },
  "pg_task.active": {
    ...positiveInterval("1 hour"),
    levels: task,
    meaning: "how long after `plan` the task may still start",
  },
  "pg_task.live": { ...interval("0 sec"), levels: task, meaning: "lifetime of one session" },
  "pg_task.gap": { ...interval("0 sec"), levels: task, meaning: "least time between two starts of a group" },
  "pg_task.repeat": {
    ...interval("0 sec"),
    levels: task,
    meaning: "interval after which the task repeats; 0 means never",
  },
  "pg_task.keep": { ...interval("0 sec"), levels: task, meaning: "how long a finished row is kept; 0 means forever" },
  "pg_task.timeout": { ...interval("0 sec"), levels: task, meaning: "maximum run time; 0 means no limit" },
  "pg_task.delimiter": {
    ...char("\t"),
    defaultText: "tab",
    levels: task,
    meaning: "separator between columns in output",
  },
  "pg_task.escape": { ...char(""), defaultText: "empty", levels: task, meaning: "escape character in output" },
  "pg_task.quote": { ...char(""), defaultText: "empty", levels: task, meaning: "quote character in output" },
  "pg_task.group": { ...text("group"), levels: task, meaning: "group name" },
  "pg_task.null": { ...text("\\N"), levels: task, meaning: "string that stands for null in output" },
  "pg_task.zone": {
    ...text(""),
    defaultText: "empty",
    levels: task,
    meaning: "time zone of rules that name none; empty means the zone of the database",
  },
  "pg_task.plan": {
    type: "expression",
    default: "statement_timestamp()",
    levels: file,
    meaning: "default of the column `plan`, an SQL expression",
  },
  "pg_task.retry": { ...natural(0), levels: task, meaning: "how often a task is tried again after an error" },
  "pg_task.backoff": {
    ...positiveInterval("1 sec"),
    levels: task,
    meaning: "pause before the first retry; it doubles with each further retry",
  },
  "pg_task.ceiling": { ...positiveInterval("1 hour"), levels: table, meaning: "longest pause before a retry" },
  "pg_task.sqlstate": {
    type: "sqlstates",
    default: "!42,!0A",
    levels: table,
    meaning: "errors that are retried, if the task itself does not say so; `!` marks those that are not",
  },
  "pg_task.output": {
    type: "size",
    min: 1,
    max: maxInt,
    unit: "bytes",
    default: "64MB",
    levels: table,
    meaning: "maximum output kept per task",
  },
  "pg_task.crash": {
    ...positive(3),
    levels: table,
    meaning: "number of crashes of its thread or backend after which a task becomes FAIL",
  },
  "pg_task.run": { ...positive(maxInt), levels: entry, meaning: "maximum tasks of one table running at once" },
  "pg_task.fetch": { ...positive(100), levels: table, meaning: "maximum rows of one claim statement" },
  "pg_task.limit": { ...positive(1000), levels: table, meaning: "maximum tasks claimed in one cycle" },
  "pg_task.sleep": { ...positiveMs(1000), levels: entry, meaning: "how often the table is checked" },
  "pg_task.reset": {
    ...positiveInterval("1 hour"),
    levels: entry,
    meaning: "how often to look for orphaned tasks, in addition to the immediate checks",
  },
  "pg_task.idle": {
    alias: "pg_work.idle",
    ...positive(60),
    levels: table,
    meaning: "cycles without tasks before deep sleep",
  },
  "pg_task.schema": { ...name("public"), levels: entry, meaning: "schema of the task table" },
  "pg_task.table": { ...name("task"), levels: entry, meaning: "name of the task table" },
  "pg_task.home": {
    ...text(""),
    defaultText: "empty",
    levels: file,
    meaning: "name of the place, such as `production`; a table that is at home under another name starts nothing",
  },
  "pg_task.data": {
    ...name("postgres"),
    levels: file,
    supervisorOnly: true,
    meaning: "database of the entries that name neither database nor user",
  },
  "pg_task.user": {
    ...name("postgres"),
    levels: file,
    supervisorOnly: true,
    meaning: "user of the entries that name neither database nor user",
  },
  "pg_task.create": {
    ...bool(false),
    defaultText: "`false`; `true` in a file that is an array",
    levels: file,
    supervisorOnly: true,
    meaning: "whether to create the missing role and database of an entry that does not say `create`",
  },
  "pg_task.default": {
    ...text(""),
    defaultText: "the first entry",
    levels: file,
    supervisorOnly: true,
    meaning: "the entry whose table commands use if they are not told which: its number, key, database or table",
  },
  "pg_task.json": {
    type: "json",
    default: [],
    defaultText: "one entry: the connection's own database and user",
    levels: file,
    meaning: "the entries, one for each task table",
  },
  "pg_conf.max": {
    ...positive(64),
    levels: file,
    supervisorOnly: true,
    meaning: "maximum executor sessions of this process",
  },
  "pg_conf.reserve": {
    ...natural(2),
    levels: file,
    meaning: "sessions, at most a quarter of a table's, that groups with running tasks leave to other groups",
  },
  "pg_conf.close": {
    ...positiveMs(60_000),
    levels: stored,
    meaning: "how long a manager may take to acknowledge its parameters, or go without a heartbeat",
  },
  "pg_work.close": {
    ...positiveMs(60_000),
    levels: stored,
    meaning: "how long a started executor may take to acknowledge its parameters",
  },
  "pg_conf.fetch": { ...positive(10), levels: stored, supervisorOnly: true, meaning: "entries started at once" },
  "pg_work.fetch": { ...positive(100), levels: stored, meaning: "rows of one expiry, rescue or pruning statement" },
  "pg_conf.restart": {
    ...positiveS(60),
    levels: stored,
    meaning: "maximum delay before a failed manager is restarted",
  },
  "pg_work.restart": {
    ...positiveS(60),
    levels: stored,
    meaning: "maximum delay before a failed executor is restarted",
  },
  "pg_conf.grace": {
    ...naturalMs(30_000),
    levels: file,
    supervisorOnly: true,
    meaning: "how long running tasks may take to finish on shutdown",
  },
  "pg_conf.frozen": {
    ...naturalMs(30_000),
    levels: file,
    meaning:
      "how long a process may leave a standby's question unanswered before its connections are ended, 0 for ever",
  },
  // One core is left for the manager's thread, which is as busy as an executor thread.
  "pg_conf.threads": {
    type: "int",
    min: 1,
    max: 1024,
    default: Math.max(1, availableParallelism() - 1),
    defaultText: "the number of cores minus one, at least 1",
    levels: file,
    meaning: "maximum executor threads of one manager",
  },
  "pg_conf.name": {
    type: "text",
    min: 1,
    default: "pg_task",
    levels: file,
    supervisorOnly: true,
    meaning: "name of the cluster: processes with the same name and control database form one cluster",
  },
  "pg_conf.log": { type: "level", default: "info", levels: file, meaning: "lowest level that is logged" },
  "pg_http.listen": {
    type: "listen",
    default: "",
    defaultText: "off; with the embedded server 127.0.0.1:8765, or a free port",
    levels: file,
    supervisorOnly: true,
    meaning: "address of the page, the metrics and the health checks",
  },
  "pg_http.token": {
    ...secret(""),
    defaultText: "on loopback only: a random token at each start",
    levels: file,
    supervisorOnly: true,
    meaning: "token that the page and its API require",
  },
  "pg_http.readonly": {
    ...secret(""),
    defaultText: "none",
    levels: file,
    supervisorOnly: true,
    meaning: "another token, which reads everything and changes nothing",
  },
  "pg_http.hosts": {
    type: "hosts",
    default: "",
    defaultText: "on loopback only the machine itself, otherwise every name",
    levels: file,
    supervisorOnly: true,
    meaning: "host names by which the page is reached, with commas between them",
  },
} as const satisfies Readonly<Record<string, Omit<Parameter, "name">>>;

type Table = typeof catalogue;

export type ParameterName = keyof Table;

const isName = (key: string): key is ParameterName => Object.hasOwn(catalogue, key);

export const parameters: readonly (Parameter & { readonly name: ParameterName })[] = Object.keys(catalogue)
  .filter(isName)
  .map((key) => ({ name: key, ...catalogue[key] }));

export type ParameterOfType<Type extends ParameterType> = {
  [Name in ParameterName]: Table[Name]["type"] extends Type ? Name : never;
}[ParameterName];

type FileParameter = {
  [Name in ParameterName]: Table[Name] extends {
    levels: readonly ["file", ...Level[]];
    type: Exclude<ParameterType, "json">;
  }
    ? Name
    : never;
}[ParameterName];

type ValueOf<Type extends ParameterType> = Type extends "bool"
  ? boolean
  : Type extends "int" | "size"
    ? number
    : Type extends "level"
      ? (typeof logLevels)[number]
      : string;

/**
 * Sizes are in bytes, intervals are text that PostgreSQL interprets. `pg_http.listen` can also be `auto`, the default
 * with the embedded server. `pg_http.token` and `pg_http.readonly` are secret, and empty in entries.
 */
export type FileParameters = {
  readonly [Name in FileParameter]: ValueOf<Table[Name]["type"]>;
};
