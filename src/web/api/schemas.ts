import { z } from "zod";
import { states } from "../../tasks/taskFilter.js";

/** Every shape of the API's answers by its name, for the OpenAPI document. */
export const models = z.registry<{ id: string }>();

function model<T extends z.ZodType>(id: string, schema: T): T {
  models.add(schema, { id });
  return schema;
}

const time = z.string().meta({ description: "ISO 8601, or infinity" });
const taskId = z
  .string()
  .regex(/^-?\d{1,19}$/, { abort: true, error: "expected a task's id, a whole number" })
  .refine((text) => BigInt.asIntN(64, BigInt(text)) === BigInt(text), "expected a bigint")
  .meta({ description: "a bigint, as text" });

export const countSchema = model(
  "Count",
  z.object({
    value: z.number().min(0),
    exact: z.boolean().meta({ description: "false: an estimate of the server's planner" }),
  }),
);

export const managerSchema = model(
  "Manager",
  z.object({
    state: z.enum(["starting", "working", "waiting"]),
    since: time,
    reason: z.string().nullable().meta({ description: "why it waits" }),
    stalled: z
      .object({
        since: time,
        tasks: z.array(taskId).readonly(),
      })
      .nullable()
      .meta({ description: "some due tasks that are not taken though nothing keeps them" }),
    running: z.int(),
    sessions: z.int(),
  }),
);

const names = {
  id: z.string().meta({ description: "names the table in paths; stays the same" }),
  server: z.string().meta({ description: "host:port, or a socket's folder" }),
  database: z.string(),
  schema: z.string(),
  table: z.string(),
};

export const healthSchema = model(
  "Health",
  z.object({
    status: z.enum(["ready", "not ready"]),
    role: z.enum(["seeking", "leader", "standby", "stopping"]),
    since: time,
    pid: z.int(),
    version: z.string(),
    managers: z.array(z.object({ ...names, manager: managerSchema.nullable() }).omit({ id: true })),
  }),
);

export const summarySchema = model(
  "Summary",
  z.object({
    rows: countSchema,
    states: z.record(z.enum(states), countSchema),
    due: countSchema.meta({ description: "tasks in PLAN whose plan has come" }),
    oldestDueMs: z.number().nullable().meta({ description: "how long the longest due one waits" }),
    waitMs: z
      .object({ p50: z.number(), p95: z.number() })
      .nullable()
      .meta({ description: "from plan to start, of the latest thousand rows" }),
    runMs: z
      .object({ p50: z.number(), p95: z.number() })
      .nullable()
      .meta({ description: "from start to stop, of the latest thousand rows" }),
    paused: z.array(
      z.object({ group: z.string().nullable(), since: time, reason: z.string().nullable() }),
    ),
  }),
);

export const tableSchema = model(
  "Table",
  z.object({
    ...names,
    manager: managerSchema.nullable(),
    summary: summarySchema.nullable(),
    error: z.string().nullable().meta({ description: "why there is no summary" }),
  }),
);

export const clusterSchema = model(
  "Cluster",
  z.object({
    role: healthSchema.shape.role,
    ready: z.boolean(),
    since: time,
    version: z.string(),
    now: time,
    sessions: z.object({ most: z.int() }),
    tables: z.array(tableSchema),
  }),
);

export const pointSchema = model(
  "Point",
  z.object({
    at: z.number().meta({ description: "start of the span, seconds since 1970" }),
    started: z.number(),
    done: z.number(),
    failed: z.number(),
    gone: z.number(),
    running: z.number(),
    sessions: z.number(),
    runP50: z.number().nullable().meta({ description: "seconds" }),
    runP95: z.number().nullable().meta({ description: "seconds" }),
    due: z.number().nullable().meta({ description: "null while nobody looked" }),
  }),
);

export const historySchema = model(
  "History",
  z.object({
    spanSeconds: z.number(),
    points: z.array(pointSchema).meta({ description: "oldest first, one for each span" }),
  }),
);

export const groupSchema = model(
  "Group",
  z.object({
    group: z.string(),
    running: z.int().meta({ description: "sessions that run a task of it" }),
    waiting: z.int(),
    due: z.int().meta({ description: "those of them whose plan has come" }),
    oldest: time.nullable().meta({ description: "earliest plan of those that wait" }),
    oldestDueMs: z.number().nullable().meta({ description: "how long the longest due one waits" }),
    paused: z.boolean(),
    done: z.int().meta({ description: "of the newest rows, as those below" }),
    failed: z.int(),
    other: z.int().meta({ description: "GONE and STOP" }),
  }),
);

export const groupsSchema = model(
  "Groups",
  z.object({
    groups: z.array(groupSchema),
    complete: z.boolean().meta({
      description: "whether all that waits was looked at; else waiting and due are estimates",
    }),
    newest: z.int().meta({ description: "how many of the newest rows were looked at" }),
    newestComplete: z.boolean().meta({ description: "whether those are all rows" }),
  }),
);

const summaryShape = {
  id: taskId,
  parent: taskId.nullable(),
  state: z.string(),
  group: z.string().nullable(),
  plan: time,
  start: time.nullable(),
  stop: time.nullable(),
  tookMs: z.number().nullable().meta({ description: "how long it ran, or has been running" }),
  ready: z.boolean().nullable().meta({ description: "due, not due yet, or null: does not wait" }),
  held: z.boolean().meta({ description: "whether a session has it" }),
  pid: z.int().nullable(),
  max: z.int().nullable(),
  repeat: z.string().nullable(),
  remote: z.string().nullable().meta({ description: "with its password as ***" }),
  input: z.string().meta({ description: "at most its first 300 characters" }),
  error: z.string().nullable().meta({ description: "at most its first 300 characters" }),
  output: z
    .string()
    .nullable()
    .meta({ description: "at most its first 300 characters; null also when it is long" }),
  outputBytes: z.number().nullable(),
};

export const taskSummarySchema = model("TaskSummary", z.object(summaryShape));

export const tasksSchema = model(
  "Tasks",
  z.object({
    tasks: z.array(taskSummarySchema).meta({ description: "newest first" }),
    next: taskId.nullable().meta({ description: "give it as `before` to go on; null at the end" }),
    looked: z.int().meta({ description: "how many rows were looked through" }),
  }),
);

const longText = z.object({
  text: z.string().meta({ description: "at most its first 256 K characters" }),
  bytes: z.number().meta({ description: "of the whole" }),
});

export const taskSchema = model(
  "Task",
  z.object({
    ...summaryShape,
    input: longText,
    output: longText.nullable(),
    error: longText.nullable(),
    data: longText.nullable(),
    columns: z
      .record(z.string(), z.unknown())
      .meta({ description: "all other columns, a user's own included" }),
  }),
);

export const descendantSchema = model(
  "Descendant",
  z.object({
    ...summaryShape,
    depth: z.int().meta({ description: "1: from the task itself" }),
  }),
);

export const taskPageSchema = model(
  "TaskPage",
  z.object({
    task: taskSchema,
    waits: z.array(z.string()).meta({ description: "why a task that waits does not run" }),
    ancestors: z.array(taskSummarySchema).meta({ description: "nearest first" }),
    ancestorsComplete: z.boolean().meta({ description: "false: there are more" }),
    descendants: z.array(descendantSchema).meta({ description: "each followed by its own" }),
    descendantsComplete: z
      .boolean()
      .meta({ description: "false: there may be more, or rows that were not looked through" }),
  }),
);

export const changedTaskSchema = model(
  "ChangedTask",
  z.object({ id: taskId, state: z.string().meta({ description: "the one it has now" }) }),
);

export const problemSchema = model(
  "Problem",
  z.object({ error: z.object({ code: z.string(), message: z.string() }) }),
);

export const tablePathSchema = z.strictObject({ table: z.string() });
export const taskPathSchema = tablePathSchema.extend({ id: taskId });

/** PostgreSQL knows no year 0. */
const moment = z.iso
  .datetime({
    offset: true,
    error: "expected a time as ISO 8601 has it, such as 2026-11-23T10:00:00Z",
  })
  .refine((text) => !text.startsWith("0000"), "expected a year from 0001 on");

/** What a text of PostgreSQL's can be. */
const text = z
  .string()
  .refine((value) => !value.includes("\0"), "expected a text without zero bytes");

const partOfText = "expected 1 to 200 characters";
const pageLimit = "expected a whole number from 1 to 200";

export const taskFilterSchema = z.strictObject({
  state: z
    .string()
    .regex(new RegExp(`^(${states.join("|")})(,(${states.join("|")}))*$`), {
      error: `expected states with commas between, of ${states.join(", ")}`,
    })
    .optional()
    .meta({ description: "one or several states, with commas between" }),
  group: text.optional(),
  text: text
    .min(1, { error: partOfText })
    .max(200, { error: partOfText })
    .optional()
    .meta({ description: "part of input, data or error" }),
  from: moment.optional().meta({ description: "plan not before" }),
  to: moment.optional().meta({ description: "plan before" }),
  before: taskId.optional().meta({ description: "only tasks with a smaller id" }),
  limit: z.coerce
    .number({ error: pageLimit })
    .int({ error: pageLimit })
    .min(1, { error: pageLimit })
    .max(200, { error: pageLimit })
    .default(50),
});

export type Count = z.infer<typeof countSchema>;
export type Manager = z.infer<typeof managerSchema>;
export type Health = z.infer<typeof healthSchema>;
export type Summary = z.infer<typeof summarySchema>;
export type Table = z.infer<typeof tableSchema>;
export type Cluster = z.infer<typeof clusterSchema>;
export type Point = z.infer<typeof pointSchema>;
export type History = z.infer<typeof historySchema>;
export type Group = z.infer<typeof groupSchema>;
export type Groups = z.infer<typeof groupsSchema>;
export type TaskSummary = z.infer<typeof taskSummarySchema>;
export type Descendant = z.infer<typeof descendantSchema>;
export type Tasks = z.infer<typeof tasksSchema>;
export type Task = z.infer<typeof taskSchema>;
export type TaskPage = z.infer<typeof taskPageSchema>;
export type TaskFilter = z.infer<typeof taskFilterSchema>;
export type ChangedTask = z.infer<typeof changedTaskSchema>;
export type { TaskState } from "../../tasks/taskFilter.js";
