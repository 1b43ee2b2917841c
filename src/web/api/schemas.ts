import { z } from "zod";
import { taskStates } from "../../shared/taskState.js";
import { columnsSchema } from "./columnsSchema.js";
import { model, taskIdSchema, timeSchema, wholeNumber } from "./model.js";

const countSchema = model(
  "Count",
  z.object({
    value: z.number().min(0),
    exact: z.boolean().meta({ description: "false: estimated by the query planner" }),
  }),
);

export const managerSchema = model(
  "Manager",
  z.object({
    state: z.enum(["starting", "working", "waiting"]),
    since: timeSchema,
    code: z.string().nullable().meta({ description: "code of the error for which the manager is waiting" }),
    reason: z
      .string()
      .nullable()
      .meta({ description: "why the manager is waiting; null in a response to a request without the token" }),
    stalled: z
      .object({
        since: timeSchema,
        tasks: z.array(taskIdSchema).readonly(),
      })
      .nullable()
      .meta({ description: "some due tasks that do not start although nothing prevents it" }),
    sessionsRefused: z
      .object({
        code: z.string(),
        reason: z.string().nullable().meta({ description: "null in a response to a request without the token" }),
      })
      .nullable()
      .meta({ description: "why no session can be opened, if none is open" }),
    running: z.int(),
    sessions: z.int(),
  }),
);

export const tableNames = {
  id: z.string().meta({ description: "identifies the table in paths; never changes" }),
  server: z.string().meta({ description: "host:port, or the directory of a Unix socket" }),
  database: z.string(),
  schema: z.string(),
  table: z.string(),
};

export const healthSchema = model(
  "Health",
  z.object({
    status: z.enum(["ready", "not ready"]),
    role: z.enum(["seeking", "leader", "standby", "stopping"]),
    since: timeSchema,
    pid: z.int(),
    version: z.string(),
    managers: z.array(z.object({ ...tableNames, manager: managerSchema.nullable() }).omit({ id: true })),
  }),
);

const tableSummarySchema = model(
  "Summary",
  z.object({
    rows: countSchema,
    states: z.record(z.enum(taskStates), countSchema),
    due: countSchema.meta({ description: "tasks in PLAN whose planned time has come" }),
    oldestDueMs: z.number().nullable().meta({ description: "how long the oldest due task has been due" }),
    owed: z.int().meta({ description: "schedules whose next run could not be planned yet" }),
    waitMs: z
      .object({ p50: z.number(), p95: z.number() })
      .nullable()
      .meta({ description: "time from plan to start, among the newest 1,000 rows" }),
    runMs: z
      .object({ p50: z.number(), p95: z.number() })
      .nullable()
      .meta({ description: "time from start to stop, among the newest 1,000 rows" }),
    paused: z.array(z.object({ group: z.string().nullable(), since: timeSchema, reason: z.string().nullable() })),
  }),
);

export const tableSchema = model(
  "Table",
  z.object({
    ...tableNames,
    manager: managerSchema.nullable(),
    summary: tableSummarySchema.nullable(),
    error: z.string().nullable().meta({ description: "why summary is null" }),
  }),
);

export const clusterSchema = model(
  "Cluster",
  z.object({
    role: healthSchema.shape.role,
    ready: z.boolean(),
    since: timeSchema,
    version: z.string(),
    now: timeSchema,
    sessions: z.object({ most: z.int() }),
    tables: z.array(tableSchema),
  }),
);

const historyPointSchema = model(
  "Point",
  z.object({
    at: z.number().meta({ description: "start of the interval, in seconds since 1970" }),
    started: z.number(),
    done: z.number(),
    failed: z.number(),
    gone: z.number(),
    running: z.number(),
    sessions: z.number(),
    runP50: z.number().nullable().meta({ description: "seconds" }),
    runP95: z.number().nullable().meta({ description: "seconds" }),
    waitP50: z.number().nullable().meta({ description: "seconds from plan to start" }),
    waitP95: z.number().nullable().meta({ description: "seconds from plan to start" }),
    due: z.number().nullable().meta({ description: "null: not measured, because nobody was watching" }),
  }),
);

export const tableHistorySchema = model(
  "History",
  z.object({
    spanSeconds: z.number(),
    points: z.array(historyPointSchema).meta({ description: "one per interval, oldest first" }),
  }),
);

const groupSchema = model(
  "Group",
  z.object({
    group: z.string(),
    running: z.int().meta({ description: "sessions that run a task of the group" }),
    waiting: z.int(),
    due: z.int().meta({ description: "waiting tasks whose planned time has come" }),
    oldest: timeSchema.nullable().meta({ description: "earliest plan of a waiting task" }),
    oldestDueMs: z.number().nullable().meta({ description: "how long the oldest due task has been due" }),
    paused: z.boolean(),
    gapMs: z.number().meta({ description: "the longest gap among the waiting tasks, 0 for none" }),
    done: z.int().meta({ description: "among the newest rows, as failed and other" }),
    failed: z.int(),
    other: z.int().meta({ description: "GONE and STOP" }),
  }),
);

export const groupsSchema = model(
  "Groups",
  z.object({
    groups: z.array(groupSchema),
    complete: z.boolean().meta({
      description: "false: not all waiting tasks were read, so waiting and due are estimates",
    }),
    newest: z.int().meta({ description: "how many of the newest rows were read" }),
    newestComplete: z.boolean().meta({ description: "true: the table has no other rows" }),
  }),
);

const taskSummaryShape = {
  id: taskIdSchema,
  parent: taskIdSchema.nullable(),
  state: z.enum(taskStates),
  group: z.string().nullable(),
  plan: timeSchema,
  start: timeSchema.nullable(),
  stop: timeSchema.nullable(),
  tookMs: z.number().nullable().meta({ description: "how long the task ran, or has been running" }),
  ready: z.boolean().nullable().meta({ description: "true: due; false: not due yet; null: not waiting" }),
  claimed: z.boolean().meta({ description: "whether it is assigned to a session" }),
  pid: z.int().nullable(),
  max: z.int().nullable(),
  repeat: z.string().nullable(),
  rule: z.string().nullable().meta({ description: "when it runs again" }),
  key: z.string().nullable().meta({ description: "of the tasks with the same key, one waits and one runs" }),
  retry: z.int().nullable().meta({ description: "how often it is tried again" }),
  attempt: z.int().nullable().meta({ description: "how many tries have failed and led to a retry" }),
  held: z.boolean().meta({ description: "whether it waits for the end of others (`after`)" }),
  remote: z.string().nullable().meta({ description: "its password is replaced by ***" }),
  input: z.string().meta({ description: "at most its first 300 characters" }),
  error: z.string().nullable().meta({ description: "at most its first 300 characters" }),
  output: z.string().nullable().meta({ description: "at most its first 300 characters; null also if it is very long" }),
  outputBytes: z.number().nullable(),
};

const taskSummarySchema = model("TaskSummary", z.object(taskSummaryShape));

export const taskListSchema = model(
  "Tasks",
  z.object({
    tasks: z.array(taskSummarySchema).meta({ description: "in the requested order" }),
    next: taskIdSchema.nullable().meta({
      description: "pass it as `before`, or as `after` if the oldest come first, to get the next page; null at the end",
    }),
    scanned: z.int().meta({ description: "how many rows were scanned" }),
  }),
);

const longTextSchema = z.object({
  text: z.string().meta({ description: "at most its first 262,144 characters" }),
  bytes: z.number().meta({ description: "size of the complete text" }),
});

const otherColumnsSchema = columnsSchema(new Set([...Object.keys(taskSummaryShape), "data"]));

const fullTaskSchema = model(
  "Task",
  z.object({
    ...taskSummaryShape,
    input: longTextSchema,
    output: longTextSchema.nullable(),
    error: longTextSchema.nullable(),
    data: longTextSchema.nullable(),
    columns: otherColumnsSchema,
  }),
);

const descendantSchema = model(
  "Descendant",
  z.object({
    ...taskSummaryShape,
    depth: z.int().meta({ description: "1: a child of the task" }),
  }),
);

export const taskDetailSchema = model(
  "TaskPage",
  z.object({
    task: fullTaskSchema,
    defaults: otherColumnsSchema.meta({
      description: "what the columns of a new row contain if the INSERT does not set them, as far as they are constant",
    }),
    waits: z.array(z.string()).meta({ description: "why a waiting task does not run" }),
    ancestors: z.array(taskSummarySchema).meta({ description: "nearest first" }),
    ancestorsComplete: z.boolean().meta({ description: "false: there are more" }),
    descendants: z.array(descendantSchema).meta({ description: "each followed by its own descendants" }),
    descendantsComplete: z.boolean().meta({ description: "false: there may be more" }),
  }),
);

/** Problem details as in RFC 9457, with the member `code`. */
export const problemSchema = model(
  "Problem",
  z.object({
    type: z.literal("about:blank"),
    title: z.string().meta({ description: "the HTTP status in words" }),
    status: z.int(),
    detail: z.string().meta({ description: "what is wrong, in English" }),
    code: z.string().meta({ description: "what is wrong, for programs" }),
  }),
);

export const tablePathSchema = z.strictObject({ table: z.string() });
export const taskPathSchema = tablePathSchema.extend({ id: taskIdSchema });

/** The year 0 is refused because PostgreSQL has no such year. */
const planBoundSchema = z.iso
  .datetime({
    offset: true,
    error: "expected an ISO 8601 time such as 2026-11-23T10:00:00Z",
  })
  .refine((text) => !text.startsWith("0000"), "expected a year after 0000");

/** A text value in PostgreSQL cannot contain zero bytes. */
export const textSchema = z.string().refine((value) => !value.includes("\0"), "expected text without zero bytes");

const searchTextError = "expected 1 to 200 characters";

export const taskQuerySchema = z.strictObject({
  state: z
    .string()
    .regex(new RegExp(`^(${taskStates.join("|")})(,(${taskStates.join("|")}))*$`), {
      error: `expected comma-separated states out of ${taskStates.join(", ")}`,
    })
    .optional()
    .meta({ description: "one or more states, separated by commas" }),
  group: textSchema.optional(),
  key: textSchema.optional().meta({ description: "only tasks with this key" }),
  text: textSchema
    .min(1, { error: searchTextError })
    .max(200, { error: searchTextError })
    .optional()
    .meta({ description: "a part of input, data or error; case-insensitive" }),
  from: planBoundSchema.optional().meta({ description: "plan at or after" }),
  to: planBoundSchema.optional().meta({ description: "plan before" }),
  waitingFor: taskIdSchema.optional().meta({ description: "only tasks that wait for the end of this one (`after`)" }),
  before: taskIdSchema.optional().meta({ description: "only tasks with a smaller id" }),
  after: taskIdSchema.optional().meta({ description: "only tasks with a larger id" }),
  order: z
    .enum(["newest", "oldest"], { error: "expected newest or oldest" })
    .default("newest")
    .meta({ description: "which tasks come first" }),
  limit: wholeNumber(200, 50),
});

export const ruleTimesSchema = model(
  "RuleTimes",
  z.object({
    zone: z.string(),
    times: z
      .array(
        z.object({
          at: timeSchema,
          wall: z.string().meta({ description: "the clock's reading in the rule's zone" }),
          offset: z.string().meta({ description: "the zone's offset from UTC at this time" }),
          note: z.string().nullable().meta({ description: "what a change of the clocks does to this time" }),
        }),
      )
      .readonly(),
  }),
);

export const scheduleQuerySchema = z.strictObject({
  group: textSchema.optional(),
  text: taskQuerySchema.shape.text.meta({ description: "a part of input or rule; case-insensitive" }),
  limit: wholeNumber(1_000, 100),
});

const ruleTextError = "expected 1 to 10,000 characters";

export const nextQuerySchema = z.strictObject({
  rule: textSchema
    .min(1, { error: ruleTextError })
    .max(10_000, { error: ruleTextError })
    .meta({ description: "a cron expression or an RRULE" }),
  zone: textSchema.optional().meta({ description: "default: the zone that the rule names, or the database's" }),
  since: planBoundSchema.optional().meta({ description: "only later times; default: now" }),
  count: wholeNumber(100, 10),
});

export type ScheduleQuery = z.infer<typeof scheduleQuerySchema>;
export type NextQuery = z.infer<typeof nextQuerySchema>;
export type ManagerInfo = z.infer<typeof managerSchema>;
export type Health = z.infer<typeof healthSchema>;
export type TableSummary = z.infer<typeof tableSummarySchema>;
export type TableInfo = z.infer<typeof tableSchema>;
export type ClusterInfo = z.infer<typeof clusterSchema>;
export type HistoryPoint = z.infer<typeof historyPointSchema>;
export type TableHistory = z.infer<typeof tableHistorySchema>;
export type FullTask = z.infer<typeof fullTaskSchema>;
export type TaskDetail = z.infer<typeof taskDetailSchema>;
export type TaskQuery = z.infer<typeof taskQuerySchema>;
