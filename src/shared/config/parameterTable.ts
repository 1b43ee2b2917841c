import { availableParallelism } from "node:os";
import { maxInt } from "../postgres/serverLimits.js";
import type { Webhook } from "./webhooks.js";

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
  | "path"
  | "header"
  | "networks"
  | "sqlstates"
  | "secret"
  | "weights"
  | "webhooks"
  | "json";

export interface Parameter {
  readonly name: string;
  readonly alias?: string;
  readonly type: ParameterType;
  readonly default: boolean | number | string | readonly unknown[] | Readonly<Record<string, number>>;
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

export const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;

export const weightBounds = { min: 0.001, max: 1000 };

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

/** Returns a function that makes a row of the table for parameters that can be given at these levels. */
const row =
  <const Levels extends readonly Level[]>(...levels: Levels) =>
  <const Traits extends Pick<Parameter, "type" | "min" | "max" | "unit" | "aboveMin" | "default">>(
    traits: Traits,
    meaning: string,
    more: Pick<Parameter, "alias" | "defaultText" | "supervisorOnly"> = {},
  ): Traits & Pick<Parameter, "alias" | "meaning"> & { readonly levels: Levels } => ({
    ...traits,
    levels,
    meaning,
    ...more,
  });

const inFile = row("file");
const stored = row("file", "database");
const ofTable = row("file", "database", "role");
const ofEntry = row("file", "database", "role", "entry");
const ofTask = row("file", "database", "role", "session");

/**
 * Every parameter. The types, the schema and the checks of the file, the lists of parameters of some kind and a table in
 * the documentation are derived from this table.
 */
const catalogue = {
  "pg_task.delete": ofTask(bool(true), "delete the row when output and error are both null"),
  "pg_task.drift": ofTask(bool(false), "repeat relative to the stop instead of the plan"),
  "pg_task.header": ofTask(bool(true), "write column names to output"),
  "pg_task.string": ofTask(bool(true), "quote only strings"),
  "pg_task.save": ofTask(bool(false), "keep session state between the tasks of one session"),
  "pg_task.atomic": ofTask(bool(true), "commit effect and DONE in one transaction if the SQL allows it"),
  "pg_task.count": ofTask(natural(0), "tasks that one session runs before it ends"),
  "pg_task.max": ofTask(
    { type: "int", min: -maxInt - 1, max: maxInt, default: 0 },
    "how many other tasks of its group may run at the same time; negative: pause in ms",
  ),
  "pg_task.active": ofTask(positiveInterval("1 hour"), "how long after `plan` the task may still start"),
  "pg_task.live": ofTask(interval("0 sec"), "lifetime of one session"),
  "pg_task.gap": ofTask(interval("0 sec"), "least time between two starts of a group"),
  "pg_task.repeat": ofTask(interval("0 sec"), "interval after which the task repeats; 0 means never"),
  "pg_task.keep": ofTask(interval("0 sec"), "how long a finished row is kept; 0 means forever"),
  "pg_task.timeout": ofTask(interval("0 sec"), "maximum run time; 0 means no limit"),
  "pg_task.delimiter": ofTask(char("\t"), "separator between columns in output", { defaultText: "tab" }),
  "pg_task.escape": ofTask(char(""), "escape character in output", { defaultText: "empty" }),
  "pg_task.quote": ofTask(char(""), "quote character in output", { defaultText: "empty" }),
  "pg_task.group": ofTask(text("group"), "group name"),
  "pg_task.null": ofTask(text("\\N"), "string that stands for null in output"),
  "pg_task.zone": ofTask(text(""), "time zone of rules that name none; empty means the zone of the database", {
    defaultText: "empty",
  }),
  "pg_task.plan": inFile(
    { type: "expression", default: "statement_timestamp()" },
    "default of the column `plan`, an SQL expression",
  ),
  "pg_task.retry": ofTask(natural(0), "how often a task is tried again after an error"),
  "pg_task.backoff": ofTask(
    positiveInterval("1 sec"),
    "pause before the first retry; it doubles with each further retry",
  ),
  "pg_task.ceiling": ofTable(positiveInterval("1 hour"), "longest pause before a retry"),
  "pg_task.sqlstate": ofTable(
    { type: "sqlstates", default: "!42,!0A" },
    "errors that are retried, if the task itself does not say so; `!` marks those that are not",
  ),
  "pg_task.output": ofTable(
    { type: "size", min: 1, max: maxInt, unit: "bytes", default: "64MB" },
    "maximum output kept per task",
  ),
  "pg_task.slow": ofTable(interval("0 sec"), "run time after which a running task is logged; 0 means never"),
  "pg_task.crash": ofTable(positive(3), "number of crashes of its thread or backend after which a task becomes FAIL"),
  "pg_task.run": ofEntry(positive(maxInt), "maximum tasks of one table running at once"),
  "pg_task.fetch": ofTable(positive(100), "maximum rows of one claim statement"),
  "pg_task.limit": ofTable(positive(1000), "maximum tasks claimed in one cycle"),
  "pg_task.sleep": ofEntry(positiveMs(1000), "how often the table is checked"),
  "pg_task.reset": ofEntry(
    positiveInterval("1 hour"),
    "how often to look for orphaned tasks, in addition to the immediate checks",
  ),
  "pg_task.idle": ofTable(positive(60), "cycles without tasks before deep sleep", { alias: "pg_work.idle" }),
  "pg_task.schema": ofEntry(name("public"), "schema of the task table"),
  "pg_task.table": ofEntry(name("task"), "name of the task table"),
  "pg_task.home": inFile(
    text(""),
    "name of the place, such as `production`; a table that is at home under another name starts nothing",
    { defaultText: "empty" },
  ),
  "pg_task.data": inFile(name("postgres"), "database of the entries that name neither database nor user", {
    supervisorOnly: true,
  }),
  "pg_task.user": inFile(name("postgres"), "user of the entries that name neither database nor user", {
    supervisorOnly: true,
  }),
  "pg_task.create": inFile(
    bool(false),
    "whether to create the missing role and database of an entry that does not say `create`",
    { defaultText: "`false`; `true` in a file that is an array", supervisorOnly: true },
  ),
  "pg_task.default": inFile(
    text(""),
    "the entry whose table commands use if they are not told which: its number, key, database or table",
    { defaultText: "the first entry", supervisorOnly: true },
  ),
  "pg_task.share": inFile(
    text(""),
    'what divides tasks into shares: a text such as `/`, for the part of "group" before it',
    { defaultText: "empty" },
  ),
  "pg_task.weights": inFile(
    { type: "weights", default: {} },
    'weights of shares, such as `{"alice": 2}`; others have 1',
    { defaultText: "none" },
  ),
  "pg_task.json": inFile({ type: "json", default: [] }, "the entries, one for each task table", {
    defaultText: "one entry: the connection's own database and user",
  }),
  "pg_conf.max": inFile(positive(64), "maximum executor sessions of this process", { supervisorOnly: true }),
  "pg_conf.reserve": inFile(
    natural(2),
    "sessions, at most a quarter of a table's, that groups (or shares) with running tasks leave to others",
  ),
  "pg_conf.close": stored(
    positiveMs(60_000),
    "how long a manager may take to acknowledge its parameters, or go without a heartbeat",
  ),
  "pg_work.close": stored(positiveMs(60_000), "how long a started executor may take to acknowledge its parameters"),
  "pg_conf.fetch": stored(positive(10), "entries started at once", { supervisorOnly: true }),
  "pg_work.fetch": stored(positive(100), "rows of one expiry, rescue or pruning statement"),
  "pg_conf.restart": stored(positiveS(60), "maximum delay before a failed manager is restarted"),
  "pg_work.restart": stored(positiveS(60), "maximum delay before a failed executor is restarted"),
  "pg_conf.grace": inFile(naturalMs(30_000), "how long running tasks may take to finish on shutdown", {
    supervisorOnly: true,
  }),
  "pg_conf.frozen": inFile(
    naturalMs(30_000),
    "how long a process may leave a standby's question unanswered before its connections are ended, 0 for ever",
  ),
  // One core is left for the manager's thread, which is as busy as an executor thread.
  "pg_conf.threads": inFile(
    { type: "int", min: 1, max: 1024, default: Math.max(1, availableParallelism() - 1) },
    "maximum executor threads of one manager",
    { defaultText: "the number of cores minus one, at least 1" },
  ),
  "pg_conf.name": inFile(
    { type: "text", min: 1, default: "pg_task" },
    "name of the cluster: processes with the same name and control database form one cluster",
    { supervisorOnly: true },
  ),
  "pg_conf.log": inFile({ type: "level", default: "info" }, "lowest level that is logged"),
  "pg_http.listen": inFile({ type: "listen", default: "" }, "address of the page, the metrics and the health checks", {
    defaultText: "off; with the embedded server 127.0.0.1:8765, or a free port",
    supervisorOnly: true,
  }),
  "pg_http.token": inFile(secret(""), "token that the page and its API require", {
    defaultText: "on loopback only: a random token at each start",
    supervisorOnly: true,
  }),
  "pg_http.readonly": inFile(secret(""), "another token, which reads everything and changes nothing", {
    defaultText: "none",
    supervisorOnly: true,
  }),
  "pg_http.hosts": inFile(
    { type: "hosts", default: "" },
    "host names by which the page is reached, with commas between them",
    { defaultText: "on loopback only the machine itself, otherwise every name", supervisorOnly: true },
  ),
  "pg_http.base": inFile({ type: "path", default: "" }, "path under which a proxy serves the page", {
    defaultText: "the root",
    supervisorOnly: true,
  }),
  "pg_http.user": inFile(
    { type: "header", default: "" },
    "header in which your proxy names the user whom it has logged in; this user needs no token",
    { defaultText: "none", supervisorOnly: true },
  ),
  "pg_http.proxies": inFile(
    { type: "networks", default: "127.0.0.1,::1" },
    "addresses of the proxies from which `pg_http.user` is accepted",
    { supervisorOnly: true },
  ),
  "pg_http.webhooks": inFile({ type: "webhooks", default: [] }, "URLs that are told when tasks have ended", {
    defaultText: "none",
  }),
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
      : Type extends "weights"
        ? Readonly<Record<string, number>>
        : Type extends "webhooks"
          ? readonly Webhook[]
          : string;

/**
 * Sizes are in bytes, intervals are text that PostgreSQL interprets. `pg_http.listen` can also be `auto`, the default
 * with the embedded server. `pg_http.token` and `pg_http.readonly` are secret, and empty in entries.
 */
export type FileParameters = {
  readonly [Name in FileParameter]: ValueOf<Table[Name]["type"]>;
};
