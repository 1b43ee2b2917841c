import { z } from "zod";
import { columnList, type TaskColumn } from "../../shared/taskColumns.js";
import { taskStates } from "../../shared/taskState.js";
import {
  flag,
  list,
  number,
  numberOrNull,
  object,
  planBoundSchema,
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

const typeNames: Readonly<Partial<Record<TaskColumn["type"], string>>> = {
  "timestamp with time zone": "ISO 8601",
  '"char"': "one character",
  "bigint[]": "ids as strings",
  "text[]": "strings",
  text: "string",
};

export const describeColumn = ({ type, meaning }: TaskColumn): string => `${typeNames[type] ?? type}: ${meaning}`;

const taskSummaryShape = {
  id: taskIdSchema,
  parent: taskIdSchema.nullable(),
  state: z.enum(taskStates),
  group: textOrNull(),
  plan: timeSchema,
  start: timeOrNull(),
  stop: timeOrNull(),
  tookMs: numberOrNull("how long the task ran, or has been running"),
  ready: z.boolean().nullable().meta({ description: "true: due; false: not due yet; null: not waiting" }),
  claimed: flag("whether it is assigned to a session"),
  pid: wholeOrNull(),
  max: wholeOrNull(),
  repeat: textOrNull(),
  rule: textOrNull("when it runs again"),
  key: textOrNull("of the tasks with the same key, one waits and one runs"),
  role: textOrNull("that it runs as, in a table with users"),
  retry: wholeOrNull("how often it is tried again"),
  attempt: wholeOrNull("how many tries have failed and led to a retry"),
  held: flag("whether it waits for the end of others (`after`)"),
  remote: textOrNull("its password is replaced by ***"),
  input: text("at most its first 300 characters"),
  error: textOrNull("at most its first 300 characters"),
  output: textOrNull("at most its first 300 characters; null also if it is very long"),
  outputBytes: numberOrNull(),
};

const taskSummarySchema = object("TaskSummary", taskSummaryShape);

export const taskListSchema = object("Tasks", {
  tasks: list(taskSummarySchema, "in the requested order"),
  next: taskIdSchema.nullable().meta({
    description: "pass it as `before`, or as `after` if the oldest come first, to get the next page; null at the end",
  }),
  scanned: whole("how many rows were scanned"),
});

const longTextSchema = z.object({
  text: text("at most its first 262,144 characters"),
  bytes: number("size of the complete text"),
});

/** Without types, because the columns of an adopted table may have others. */
const otherColumnsSchema: z.ZodType<Record<string, unknown>> = z
  .looseObject(
    Object.fromEntries(
      columnList
        .filter(({ name }) => !(name in taskSummaryShape) && name !== "data")
        .map((column) => [
          column.name,
          z
            .unknown()
            .optional()
            .meta({ description: describeColumn(column) }),
        ]),
    ),
  )
  .meta({ description: "all other columns, including user-defined ones" });

const fullTaskSchema = object("Task", {
  ...taskSummaryShape,
  input: longTextSchema,
  output: longTextSchema.nullable(),
  error: longTextSchema.nullable(),
  data: longTextSchema.nullable(),
  columns: otherColumnsSchema,
});

const descendantSchema = object("Descendant", { ...taskSummaryShape, depth: whole("1: a child of the task") });

const blockerSchema = object("Blocker", {
  pid: whole(),
  user: textOrNull(),
  name: textOrNull("its application"),
  state: textOrNull("what its session does; null, as the following, if the entry's user may not see it"),
  since: timeOrNull(),
  started: timeOrNull("when its backend started"),
  query: textOrNull("at most the first 2,000 characters of its last statement"),
  endable: flag("whether `end-blocker` can end it: it is a client, and none of pg-task"),
});

const reasonSchema = object("Reason", {
  code: text("for programs"),
  text: text(),
  remedy: textOrNull("what ends it, with the commands of pg-task"),
  tasks: list(taskIdSchema, "the tasks that block this one, or that the text is about"),
  action: z
    .union([
      z.object({ name: z.enum(["run-now", "run-without-waiting", "retry-without-waiting", "resume-schedule"]) }),
      z.object({ name: z.literal("resume"), group: textOrNull("null: the whole table") }),
    ])
    .nullable()
    .meta({
      description:
        "a request that ends it: to run the task now or without waiting for others, to resume its schedule, or its group or table",
    }),
  hint: textOrNull("as `remedy`, for users who have buttons instead of commands"),
  statement: textOrNull("SQL that ends it"),
  blockers: list(blockerSchema, "the sessions that keep it waiting and run no task"),
});

export const taskDetailSchema = object("TaskPage", {
  task: fullTaskSchema,
  defaults: otherColumnsSchema.meta({
    description: "what the columns of a new row contain if the INSERT does not set them, as far as they are constant",
  }),
  reasons: list(reasonSchema, "why the task does not run, or how its run goes on or has ended, as `pg-task why` says"),
  ancestors: list(taskSummarySchema, "nearest first"),
  ancestorsComplete: flag("false: there are more"),
  descendants: list(descendantSchema, "each followed by its own descendants"),
  descendantsComplete: flag("false: there may be more"),
});

export const taskFilterShape = {
  state: z
    .string()
    .regex(new RegExp(`^(${taskStates.join("|")})(,(${taskStates.join("|")}))*$`), {
      error: `expected comma-separated states out of ${taskStates.join(", ")}`,
    })
    .optional()
    .meta({ description: "one or more states, separated by commas" }),
  group: textSchema.optional(),
  key: textSchema.optional().meta({ description: "only tasks with this key" }),
  role: textSchema.optional().meta({ description: "only tasks that run as this role" }),
  share: textSchema.optional().meta({ description: "only tasks of this share (`pg_task.share`)" }),
  text: searchText(200).optional().meta({ description: "a part of input, data or error; case-insensitive" }),
  from: planBoundSchema.optional().meta({ description: "plan at or after" }),
  to: planBoundSchema.optional().meta({ description: "plan before" }),
  endedFrom: planBoundSchema.optional().meta({ description: "ended at or after" }),
  endedTo: planBoundSchema.optional().meta({ description: "ended before" }),
  schedule: taskIdSchema
    .optional()
    .meta({ description: "only this row of a schedule, and up to 1,000 runs before it" }),
  waitingFor: taskIdSchema.optional().meta({ description: "only tasks that wait for the end of this one (`after`)" }),
};

export const matchesQuerySchema = z.strictObject(taskFilterShape);

export const taskQuerySchema = z.strictObject({
  ...taskFilterShape,
  before: taskIdSchema.optional().meta({ description: "only tasks with a smaller id" }),
  after: taskIdSchema.optional().meta({ description: "only tasks with a larger id" }),
  order: z
    .enum(["newest", "oldest", "slowest"], { error: "expected newest, oldest or slowest" })
    .default("newest")
    .meta({
      description:
        "which tasks come first; slowest: those that ran longest, among the rows that were scanned, newest rows first",
    }),
  limit: wholeNumber(200, 50),
});

const dependencyNodeSchema = object("DependencyNode", {
  id: taskIdSchema,
  state: textOrNull("null: the row is gone; everything else is null or 0 then"),
  group: textOrNull(),
  upon: textOrNull("how its predecessors have to end: done, fail or end"),
  plan: timeOrNull("the time in `due` while it waits for others"),
  input: textOrNull("the first line, at most 300 characters"),
  error: textOrNull("the first line, at most 300 characters"),
  predecessors: whole("number of tasks in `after`"),
  waitsFor: whole("for how many of them it still waits"),
  morePredecessors: whole("how many of them are not among the nodes"),
  moreDependents: whole("how many tasks that wait for it are not among the nodes"),
});

const dependencySchema = object("Dependency", {
  task: taskIdSchema,
  predecessor: taskIdSchema,
  status: z.enum(["waits", "done", "failed", "over"]).meta({
    description:
      "waits: the task waits for the predecessor; done, failed: the predecessor has ended as DONE, or otherwise (a row that was gone when pg-task looked it up counts as done, one that was deleted later as failed); over: the task no longer waits, although the predecessor has not ended or was planned again",
  }),
});

export const dependencyGraphSchema = object("DependencyGraph", {
  nodes: list(
    dependencyNodeSchema,
    "the task, its predecessors over up to 20 levels (at most 100 tasks), and its dependents (likewise)",
  ),
  edges: list(dependencySchema, "the dependencies between these nodes"),
  formerComplete: flag("false: there may be more tasks that no longer wait for it"),
});

const zonedTimeSchema = z.object({
  at: timeSchema,
  wall: textOrNull("the clock's reading in the rule's zone, with its UTC offset"),
});

const pastRunSchema = z.object({
  id: taskIdSchema,
  state: text(),
  start: timeOrNull(),
  stop: timeOrNull(),
  tookMs: numberOrNull(),
  error: textOrNull("its first line"),
});

const scheduleSchema = object("Schedule", {
  id: taskIdSchema,
  group: textOrNull(),
  key: textOrNull(),
  role: textOrNull("the role that it runs as, in a table with users"),
  rule: textOrNull(),
  zone: textOrNull(),
  repeat: textOrNull(),
  repeatMs: numberOrNull("length of repeat, with months of 30 days"),
  max: whole(),
  drift: flag(),
  catchup: flag(),
  overlap: flag(),
  state: text("PLAN, TAKE or WORK; that of the last run if its next one is owed"),
  plan: timeOrNull("null: paused, or not yet known"),
  next: readonlyList(zonedTimeSchema, "up to three coming times"),
  paused: flag("whether the schedule, its group or the table is paused"),
  pausedItself: flag("whether the schedule itself is paused"),
  suspendedAfter: numberOrNull("how many runs in a row have failed, if it is paused because of that"),
  overdueMs: numberOrNull("how long ago the time of a waiting schedule came, else null"),
  owed: textOrNull("why the next run could not be planned yet although the row has ended, else null"),
  problem: textOrNull("why the rule gives no times"),
  input: text("at most its first 300 characters"),
  failedTries: whole("how many tries of the run that waits have failed"),
  tryError: textOrNull("first line of the error of the last of these tries"),
  last: readonlyList(pastRunSchema, "up to five last runs, newest first"),
});

export const schedulesSchema = object("Schedules", {
  schedules: list(scheduleSchema, "by planned time; those without one come last"),
  more: flag("true: there are more than `limit`"),
});

export const scheduleQuerySchema = z.strictObject({
  group: textSchema.optional(),
  role: textSchema.optional(),
  text: searchText(200).optional().meta({ description: "a part of input or rule; case-insensitive" }),
  limit: wholeNumber(1_000, 100),
});

const ruleTimeSchema = z.object({
  at: timeSchema,
  wall: text("the clock's reading in the rule's zone"),
  offset: text("the zone's offset from UTC at this time"),
  note: textOrNull("what a change of the clocks does to this time"),
});

export const ruleTimesSchema = object("RuleTimes", { zone: text(), times: readonlyList(ruleTimeSchema) });

export const nextQuerySchema = z.strictObject({
  rule: searchText(10_000).meta({ description: "a cron expression or an RRULE" }),
  zone: textSchema.optional().meta({ description: "default: the zone that the rule names, or the database's" }),
  since: planBoundSchema.optional().meta({ description: "only later times; default: now" }),
  count: wholeNumber(100, 10),
});

const taskFilterSchema = z.strictObject(taskFilterShape);

export type TaskFilterQuery = z.infer<typeof taskFilterSchema>;
export type TaskQuery = z.infer<typeof taskQuerySchema>;
export type ScheduleQuery = z.infer<typeof scheduleQuerySchema>;
export type NextQuery = z.infer<typeof nextQuerySchema>;
export type FullTask = z.infer<typeof fullTaskSchema>;
export type TaskDetail = z.infer<typeof taskDetailSchema>;
