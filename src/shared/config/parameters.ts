import { availableParallelism } from "node:os";
import type { FileParameters } from "./types.js";

/** Where a value may be given; "entry" means a key of its own in an entry, without the prefix. */
export type Level = "file" | "database" | "role" | "session" | "entry";

/** What a value is: `char` is one ASCII byte or nothing, `name` a name of PostgreSQL's. */
export type ParameterType =
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
  | "secret"
  | "json";

export interface Parameter {
  readonly name: string;
  /** Another name for the same parameter. */
  readonly alias?: string;
  readonly type: ParameterType;
  /** The value when nobody gives one: of the type the file takes. */
  readonly default: boolean | number | string | readonly unknown[];
  /** Says the default where its value differs from machine to machine, or needs words. */
  readonly defaultText?: string;
  /** Bounds, both allowed; of an interval `min` 0 is none below zero. */
  readonly min?: number;
  readonly max?: number;
  /** The least value is just above `min`. */
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

/** The largest value of PostgreSQL's int. */
export const maxInt = 2_147_483_647;

/** The words `pg_conf.log` takes. */
export const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;

const positive = { min: 1, max: maxInt } as const;
const natural = { min: 0, max: maxInt } as const;

/** Every parameter there is, by its own name. */
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
    meaning: "the next plan counts from the stop, not from the plan",
  },
  {
    name: "pg_task.header",
    type: "bool",
    default: true,
    levels: task,
    meaning: "column names in output",
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
    meaning: "effect and DONE in one transaction where the SQL allows it",
  },
  {
    name: "pg_task.count",
    type: "int",
    default: 0,
    ...natural,
    levels: task,
    meaning: "tasks that one session runs before it goes",
  },
  {
    name: "pg_task.max",
    type: "int",
    default: 0,
    min: -maxInt - 1,
    max: maxInt,
    levels: task,
    meaning: "how many others of its group may run beside it; negative: pause in ms",
  },
  {
    name: "pg_task.active",
    type: "interval",
    default: "1 hour",
    min: 0,
    aboveMin: true,
    levels: task,
    meaning: "how long after `plan` the task is still worth running",
  },
  {
    name: "pg_task.live",
    type: "interval",
    default: "0 sec",
    min: 0,
    levels: task,
    meaning: "how long one session lives",
  },
  {
    name: "pg_task.repeat",
    type: "interval",
    default: "0 sec",
    min: 0,
    levels: task,
    meaning: "repeat after this; 0 is not at all",
  },
  {
    name: "pg_task.keep",
    type: "interval",
    default: "0 sec",
    min: 0,
    levels: task,
    meaning: "how long a finished row is kept; 0 is for ever",
  },
  {
    name: "pg_task.timeout",
    type: "interval",
    default: "0 sec",
    min: 0,
    levels: task,
    meaning: "allowed run time; 0 is unlimited",
  },
  {
    name: "pg_task.delimiter",
    type: "char",
    default: "\t",
    defaultText: "tab",
    levels: task,
    meaning: "between columns of output",
  },
  {
    name: "pg_task.escape",
    type: "char",
    default: "",
    defaultText: "empty",
    levels: task,
    meaning: "escapes in output",
  },
  {
    name: "pg_task.quote",
    type: "char",
    default: "",
    defaultText: "empty",
    levels: task,
    meaning: "quotes in output",
  },
  { name: "pg_task.group", type: "text", default: "group", levels: task, meaning: "group name" },
  { name: "pg_task.null", type: "text", default: "\\N", levels: task, meaning: "null in output" },
  {
    name: "pg_task.plan",
    type: "expression",
    default: "statement_timestamp()",
    levels: file,
    meaning: "default of the column `plan`, an SQL expression",
  },
  {
    name: "pg_task.output",
    type: "size",
    default: "64MB",
    min: 1,
    max: maxInt,
    unit: "bytes",
    levels: table,
    meaning: "most output kept of one task",
  },
  {
    name: "pg_task.crash",
    type: "int",
    default: 3,
    ...positive,
    levels: table,
    meaning: "deaths of its own thread or backend after which a task is FAIL",
  },
  {
    name: "pg_task.run",
    type: "int",
    default: maxInt,
    ...positive,
    levels: entry,
    meaning: "most tasks of one table running at once",
  },
  {
    name: "pg_task.fetch",
    type: "int",
    default: 100,
    ...positive,
    levels: table,
    meaning: "most rows of one claim statement",
  },
  {
    name: "pg_task.limit",
    type: "int",
    default: 1000,
    ...positive,
    levels: table,
    meaning: "most tasks claimed in one check",
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
    meaning: "how often orphaned tasks are looked for beyond the immediate checks",
  },
  {
    name: "pg_task.idle",
    alias: "pg_work.idle",
    type: "int",
    default: 60,
    ...positive,
    levels: table,
    meaning: "empty checks before deep sleep",
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
    meaning: "the running task's id, read only",
  },
  {
    name: "pg_conf.max",
    type: "int",
    default: 64,
    ...positive,
    levels: file,
    meaning: "most executor sessions of this process",
  },
  {
    name: "pg_conf.close",
    type: "int",
    default: 60_000,
    ...positive,
    unit: "ms",
    levels: stored,
    meaning: "how long a manager may take to acknowledge its parameters, or give no sign of life",
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
    meaning: "longest pause before a failed manager is started again",
  },
  {
    name: "pg_work.restart",
    type: "int",
    default: 60,
    ...positive,
    unit: "s",
    levels: stored,
    meaning: "longest pause before a failed executor is started again",
  },
  {
    name: "pg_conf.grace",
    type: "int",
    default: 30_000,
    ...natural,
    unit: "ms",
    levels: file,
    meaning: "how long running tasks may finish at a stop",
  },
  {
    name: "pg_conf.threads",
    type: "int",
    // The manager's own thread has as much to do as an executor's.
    default: Math.max(1, availableParallelism() - 1),
    defaultText: "one less than there are cores, at least 1",
    min: 1,
    max: 1024,
    levels: file,
    meaning: "executor threads of one manager at most",
  },
  {
    name: "pg_conf.name",
    type: "text",
    default: "pg_task",
    min: 1,
    levels: file,
    meaning:
      "name of the cluster: processes with the same name on the same control database are leader and standbys",
  },
  {
    name: "pg_conf.log",
    type: "level",
    default: "info",
    levels: file,
    meaning: "least level of the lines that are logged",
  },
  {
    name: "pg_http.listen",
    type: "listen",
    default: "",
    defaultText: "off; with the embedded server 127.0.0.1:8765, or a free port",
    levels: file,
    meaning: "where the page, the metrics and the health checks are",
  },
  {
    name: "pg_http.token",
    type: "secret",
    default: "",
    defaultText: "a random one at each start, on loopback only",
    levels: file,
    meaning: "what the page and its API ask for",
  },
] as const satisfies readonly Parameter[];

/** The names in the table above. */
export type ParameterName = (typeof parameters)[number]["name"];

/** The parameter of that name or alias; undefined when there is none. */
export function findParameter(name: string): Parameter | undefined {
  return (parameters as readonly Parameter[]).find(
    (parameter) => parameter.name === name || parameter.alias === name,
  );
}

/** The parameters whose value a file may hold, the entries themselves aside. */
export function fileParameters(): (Parameter & { readonly name: keyof FileParameters })[] {
  return (parameters as readonly Parameter[]).filter(
    (parameter): parameter is Parameter & { readonly name: keyof FileParameters } =>
      parameter.levels.includes("file") && parameter.type !== "json",
  );
}

/** The parameters an entry may carry as the defaults of its table. */
export function entryParameters(): (Parameter & { readonly name: keyof FileParameters })[] {
  return fileParameters().filter(
    ({ name }) => name.startsWith("pg_task.") && name !== "pg_task.data" && name !== "pg_task.user",
  );
}

/** The parameters that a server may have set for an entry's role or database. */
export function serverParameters(): Parameter[] {
  return (parameters as readonly Parameter[]).filter(
    ({ name, levels }) => levels.includes("database") && !name.startsWith("pg_conf."),
  );
}
