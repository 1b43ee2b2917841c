import { z } from "zod";
import { taskStates } from "../../shared/taskState.js";
import {
  flag,
  list,
  number,
  numberOrNull,
  object,
  readonlyList,
  searchText,
  taskIdSchema,
  text,
  textOrNull,
  textSchema,
  timeOrNull,
  timeSchema,
  whole,
  wholeNumber,
  wholeOrNull,
} from "./model.js";

export const countSchema = object("Count", {
  value: z.number().min(0).nullable().meta({ description: "null: unknown, such as before the first ANALYZE" }),
  exact: flag("false: estimated by the server's statistics, or unknown"),
  least: number("how many were counted: there are at least so many"),
});

const managerSchema = object("Manager", {
  state: z.enum(["starting", "working", "sleeping", "waiting"]),
  since: timeSchema,
  code: textOrNull("code of the error for which the manager is waiting"),
  reason: textOrNull("why the manager is waiting; null in a response to a request without the token"),
  stalled: z
    .object({ since: timeSchema, tasks: readonlyList(taskIdSchema) })
    .nullable()
    .meta({ description: "some due tasks that do not start although nothing prevents it" }),
  sessionsRefused: z
    .object({ code: z.string(), reason: textOrNull("null in a response to a request without the token") })
    .nullable()
    .meta({ description: "why no session can be opened, if none is open" }),
  running: whole(),
  sessions: whole(),
});

const tableNames = {
  id: text("identifies the table in paths; never changes"),
  server: text("host:port, or the directory of a Unix socket"),
  database: text(),
  schema: text(),
  table: text(),
};

const roleSchema = z.enum(["seeking", "leader", "standby", "stopping"]);

export const healthSchema = object("Health", {
  status: z.enum(["ready", "not ready"]),
  role: roleSchema,
  since: timeSchema,
  pid: whole(),
  version: text(),
  managers: list(z.object({ ...tableNames, manager: managerSchema.nullable() }).omit({ id: true })),
});

const latencySchema = z.object({ p50: z.number(), p95: z.number() }).nullable();

const tableSummarySchema = object("Summary", {
  rows: countSchema,
  states: z.record(z.enum(taskStates), countSchema),
  analyzedAt: timeOrNull("when the server gathered the statistics by which states are estimated; null if they are not"),
  due: countSchema.meta({ description: "tasks in PLAN whose planned time has come" }),
  oldestDueMs: numberOrNull("how long the oldest due task has been due"),
  oldestUnpausedMs: numberOrNull("the same without tasks of paused groups"),
  owed: whole("schedules whose next run could not be planned yet"),
  waitMs: latencySchema.meta({ description: "time from plan to start, in the runs `measured`" }),
  runMs: latencySchema.meta({ description: "time from start to stop, in the runs `measured`" }),
  measured: z.object({ runs: whole(), first: timeSchema, last: timeSchema }).nullable().meta({
    description:
      "all runs of the last hour, if this process knows any, else those among the newest 1,000 rows; and when the first and the last of them ended",
  }),
  paused: list(z.object({ group: textOrNull(), since: timeSchema, reason: textOrNull() })),
  turns: list(
    z.object({
      task: text("the first task of a chain that runs alone, or is the next to do so"),
      group: textOrNull("in which nothing else starts; null: in the whole table"),
      begun: z.boolean(),
    }),
  ),
  webhooks: list(
    z.object({
      name: text(),
      waiting: whole("ends of tasks that it has not accepted yet"),
      failures: whole("requests in a row that have failed"),
      error: textOrNull("why the last request that has failed did so"),
      failedAt: timeSchema.nullable(),
    }),
  ),
});

export const tableSchema = object("Table", {
  ...tableNames,
  share: text("`pg_task.share`: what divides its tasks into shares; empty: nothing"),
  manager: managerSchema.nullable(),
  summary: tableSummarySchema.nullable(),
  error: textOrNull("why summary is null"),
});

export const clusterSchema = object("Cluster", {
  role: roleSchema,
  ready: flag(),
  since: timeSchema,
  version: text(),
  now: timeSchema,
  sessions: z.object({ most: z.int() }),
  tables: list(tableSchema),
});

const seconds = numberOrNull("seconds");
const secondsToStart = numberOrNull("seconds from plan to start");

const ofManager = numberOrNull("null: unknown, because this process has not served the table yet");

const historyPointSchema = object("Point", {
  at: number("start of the interval, in seconds since 1970"),
  started: ofManager,
  done: ofManager,
  failed: ofManager,
  gone: ofManager,
  running: ofManager,
  sessions: ofManager,
  runP50: seconds,
  runP95: seconds,
  waitP50: secondsToStart,
  waitP95: secondsToStart,
  due: numberOrNull("null: not measured, because nobody was watching"),
});

export const tableHistorySchema = object("History", {
  spanSeconds: number(),
  points: list(historyPointSchema, "one per interval, oldest first"),
});

const groupSchema = object("Group", {
  group: text(),
  running: whole("sessions that run a task of the group"),
  waiting: countSchema,
  due: countSchema.meta({ description: "waiting tasks whose planned time has come" }),
  oldest: timeOrNull("earliest plan of a waiting task"),
  oldestDueMs: numberOrNull("how long the oldest due task has been due"),
  paused: flag(),
  gapMs: number("the longest gap among the waiting tasks, 0 for none"),
  done: whole("among the newest rows, or in a small table among all, as failed and other"),
  failed: whole(),
  other: whole("GONE and STOP"),
});

export const groupsSchema = object("Groups", {
  groups: list(groupSchema),
  total: countSchema.meta({ description: "how many groups there are" }),
  complete: flag("true: these are all groups, with all their waiting tasks"),
  next: textOrNull("with `order=name`: pass it as `after` to get the next groups; null at the end"),
  newest: whole("how many of the newest rows were counted"),
  newestComplete: flag("true: the table has no other rows"),
});

export const groupQuerySchema = z.strictObject({
  order: z
    .enum(["busiest", "name"], { error: "expected busiest or name" })
    .default("busiest")
    .meta({ description: "which groups come first" }),
  after: textSchema.optional().meta({ description: "with `order=name`: only groups after this one" }),
  text: searchText(200).optional().meta({ description: "a part of the name; case-insensitive" }),
  limit: wholeNumber(1_000, 50),
});

const extent = {
  scanned: whole("how many of the newest rows were read"),
  complete: flag("false: there are more rows, for which the time was too short"),
};

const runSeconds = numberOrNull("seconds; null if there were no such runs");

const hourlyRunsSchema = z.object({
  at: number("start of the hour, in seconds since 1970"),
  complete: flag("false: the hour is not over, or not all its runs were read"),
  count: numberOrNull("runs that ended as DONE or FAIL; null: unknown, the rows were not read"),
  failed: numberOrNull(),
  runP50: runSeconds,
  runP95: runSeconds,
  runMax: runSeconds,
  waitP50: secondsToStart,
  waitP95: secondsToStart,
});

export const runHistorySchema = object("RunHistory", {
  hours: readonlyList(hourlyRunsSchema, "one per hour, oldest first"),
  ...extent,
});

export const runHistoryQuerySchema = z.strictObject({ hours: wholeNumber(720, 24) });

const errorGroupSchema = z.object({
  error: text("the first line, at most 1,000 characters"),
  state: z.enum(taskStates).meta({ description: "of these tasks" }),
  role: textOrNull("as which they ran, in a table with users"),
  count: number(),
  firstSeen: timeOrNull("when the first of these tasks ended"),
  lastSeen: timeOrNull("when the last of these tasks ended"),
  lastId: taskIdSchema.meta({ description: "this last task" }),
});

export const errorGroupsSchema = object("ErrorGroups", {
  errors: readonlyList(errorGroupSchema, "the most frequent first"),
  more: flag("true: there are more than `limit`"),
  ...extent,
});

export const errorGroupsQuerySchema = z.strictObject({ limit: wholeNumber(1_000, 100) });

const processSchema = object("Process", {
  pid: whole("process id of the server process (backend) that serves the connection"),
  address: textOrNull("IP address of the process; null for a Unix socket, or if hidden"),
  since: timeOrNull("when it connected; null if the role may not see it"),
  user: textOrNull(),
  isThis: flag("whether it is the process that has answered"),
});

export const processesSchema = object("Processes", {
  name: text("name of the cluster (`pg_conf.name`)"),
  control: z.object({ server: z.string(), database: z.string() }),
  self: z.object({
    role: roleSchema,
    since: timeSchema,
    pid: whole("process id on its own machine"),
    host: text(),
    version: text("of pg-task"),
    node: text("version of Node.js"),
  }),
  leader: processSchema.nullable().meta({ description: "null: no process leads, or it is unknown" }),
  standbys: list(processSchema),
  otherLeaders: list(
    z.object({ pid: whole(), address: textOrNull(), since: timeOrNull(), database: text() }),
    "leaders of other clusters on the control server, if this cluster has no leader",
  ),
  server: z
    .object({ version: z.string(), connections: z.int(), maxConnections: z.int() })
    .nullable()
    .meta({ description: "the control server" }),
  error: textOrNull("why leader, standbys and server are unknown"),
  sessions: z.object({ most: z.int() }),
  managers: list(
    z.object({
      ...tableNames,
      manager: managerSchema.nullable().meta({ description: "the table's manager in this process" }),
      process: processSchema.nullable().meta({ description: "the connection of the manager that serves the table" }),
      sessions: wholeOrNull("open sessions of all processes"),
      running: wholeOrNull("sessions that run a task"),
      serverVersion: textOrNull(),
      tableVersion: wholeOrNull("how far the table is migrated"),
      latestVersion: whole("how far this pg-task migrates tables"),
      error: textOrNull("why the other values are null"),
    }),
  ),
});

export const columnsInfoSchema = object("Columns", {
  columns: list(
    z.object({
      name: text(),
      type: text("SQL type"),
      nullable: flag(),
      default: textOrNull("the value of a task that gives none, as text; null: none, or not known before the insert"),
      own: flag("whether it is a user-defined column"),
    }),
  ),
});

export type ManagerInfo = z.infer<typeof managerSchema>;
export type Health = z.infer<typeof healthSchema>;
export type TableSummary = z.infer<typeof tableSummarySchema>;
export type TableInfo = z.infer<typeof tableSchema>;
export type ClusterInfo = z.infer<typeof clusterSchema>;
export type HistoryPoint = z.infer<typeof historyPointSchema>;
export type TableHistory = z.infer<typeof tableHistorySchema>;
export type Processes = z.infer<typeof processesSchema>;
export type ProcessInfo = z.infer<typeof processSchema>;
export type GroupQuery = z.infer<typeof groupQuerySchema>;
export type ColumnsInfo = z.infer<typeof columnsInfoSchema>;
