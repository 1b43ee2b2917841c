import { z } from "zod";
import { finalStates } from "../../shared/taskState.js";
import { model, taskIdSchema } from "./model.js";
import { textSchema } from "./schemas.js";

/** Maximum number of tasks that one request changes. */
const maxChangedTasks = 500;
/** Maximum number of ids that a new task can wait for, and of columns in a request. */
const maxItems = 10_000;

export const changedTaskSchema = model(
  "ChangedTask",
  z.object({
    id: taskIdSchema,
    state: z.string().nullable().meta({ description: "the new state; null if it was deleted" }),
  }),
);

export const changesBodySchema = model(
  "Changes",
  z.strictObject({
    change: z.enum(["stop", "retry", "run-now", "delete"]),
    ids: z.array(taskIdSchema).min(1).max(maxChangedTasks).meta({ description: "the tasks" }),
    states: z
      .array(z.enum(finalStates))
      .min(1)
      .optional()
      .meta({ description: "for retry: tasks in other states are refused; default: all final states" }),
  }),
);

export const changesSchema = model(
  "ChangeResults",
  z.object({
    changed: z.int().meta({ description: "how many tasks were changed" }),
    tasks: z
      .array(
        z.object({
          id: taskIdSchema,
          outcome: z.enum(["changed", "refused", "missing", "locked", "failed"]).meta({
            description:
              "changed, or why not: its state does not allow it, there is no such task, another transaction has locked it, or the server reported an error",
          }),
          state: z.string().nullable().meta({ description: "its state before; null if missing or failed" }),
          text: z.string().meta({ description: "the result in words" }),
        }),
      )
      .meta({ description: "a result for each task, in the order of the ids" }),
  }),
);

const groupSchema = textSchema.nullable().optional().meta({ description: "null or left out: the whole table" });

export const pauseBodySchema = model(
  "Pause",
  z.strictObject({
    group: groupSchema,
    reason: textSchema.max(1_000).nullable().optional().meta({ description: "shown to other users" }),
  }),
);

export const resumeBodySchema = model("Resume", z.strictObject({ group: groupSchema }));

export const pauseResultSchema = model(
  "PauseResult",
  z.object({
    group: z.string().nullable(),
    changed: z.boolean().meta({ description: "false: it already was as requested" }),
    paused: z.boolean().meta({ description: "whether it is paused now; a group also if the whole table is" }),
  }),
);

const text = textSchema.optional();
const textOrNull = textSchema.nullable().optional();
const flag = z.boolean().optional();
const flagOrNull = z.boolean().nullable().optional();
const whole = z.int32().optional();

/** A task to add, as in the library (`NewTask`). */
export const newTaskSchema = model(
  "NewTask",
  z.strictObject({
    input: text.meta({ description: "the SQL to run; required unless it is copied" }),
    args: z
      .union([z.array(z.unknown()), z.record(z.string(), z.unknown())])
      .nullable()
      .optional()
      .meta({ description: "values for the input" }),
    plan: text.meta({ description: "when to start: ISO 8601, or another time in PostgreSQL's syntax" }),
    delay: text.meta({ description: "interval from now after which to start, instead of plan" }),
    group: text,
    max: whole,
    active: text.meta({ description: "interval" }),
    timeout: text.meta({ description: "interval" }),
    repeat: text.meta({ description: "interval" }),
    rule: textOrNull,
    zone: textOrNull,
    catchup: flagOrNull,
    overlap: flagOrNull,
    drift: flag,
    key: textOrNull,
    after: z.array(taskIdSchema).max(maxItems).nullable().optional(),
    upon: z.enum(["done", "fail", "end"]).nullable().optional(),
    retry: z.int32().nullable().optional(),
    backoff: textOrNull.meta({ description: "interval" }),
    sqlstate: z.array(textSchema).max(maxItems).nullable().optional(),
    gap: textOrNull.meta({ description: "interval" }),
    keep: text.meta({ description: "interval" }),
    delete: flag,
    count: whole,
    live: text.meta({ description: "interval" }),
    save: flag,
    atomic: flag,
    header: flag,
    string: flag,
    delimiter: text,
    escape: text,
    quote: text,
    null: text,
    data: textOrNull,
    remote: textOrNull,
    parent: taskIdSchema.nullable().optional(),
    columns: z
      .record(textSchema, z.union([textSchema, z.number(), z.boolean(), z.null()]))
      .optional()
      .meta({ description: "values of your own columns, by name" }),
    copy: z
      .strictObject({ id: taskIdSchema, columns: z.array(textSchema).max(maxItems) })
      .optional()
      .meta({ description: "columns whose values are copied from another task of the table, by name" }),
  }),
);

export const addedTaskSchema = model("AddedTask", z.object({ id: taskIdSchema }));

export const columnsInfoSchema = model(
  "Columns",
  z.object({
    columns: z.array(
      z.object({
        name: z.string(),
        type: z.string().meta({ description: "SQL type" }),
        nullable: z.boolean(),
        default: z.string().nullable().meta({
          description: "the value of a task that gives none, as text; null: none, or not known before the insert",
        }),
        own: z.boolean().meta({ description: "whether it is a user-defined column" }),
      }),
    ),
  }),
);

export type ChangesBody = z.infer<typeof changesBodySchema>;
export type ChangeResults = z.infer<typeof changesSchema>;
export type PauseBody = z.infer<typeof pauseBodySchema>;
export type PauseResult = z.infer<typeof pauseResultSchema>;
export type NewTaskBody = z.infer<typeof newTaskSchema>;
export type AddedTask = z.infer<typeof addedTaskSchema>;
export type ColumnsInfo = z.infer<typeof columnsInfoSchema>;
export type ChangedTask = z.infer<typeof changedTaskSchema>;
