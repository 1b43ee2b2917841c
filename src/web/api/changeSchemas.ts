import { z } from "zod";
import { columnList, valueKind, type ColumnName, type ColumnsWith } from "../../shared/taskColumns.js";
import { finalStates, type StateChange } from "../../shared/taskState.js";
import type { NewTask } from "../../tasks/newTask.js";
import {
  flag,
  list,
  model,
  object,
  readonlyList,
  taskIdSchema,
  text,
  textOrNull,
  textSchema,
  valueErrorSchema,
  whole,
} from "./model.js";
import { countSchema } from "./schemas.js";
import { describeColumn } from "./taskSchemas.js";

const maxChangedTasks = 500;
/** Of ids that a new task can wait for, and of columns. */
const maxItems = 10_000;

export const changedTaskSchema = object("ChangedTask", {
  id: taskIdSchema,
  state: textOrNull("the new state; null if it was deleted"),
});

export const stateChangeSchema = z.enum(["stop", "retry", "run-now", "delete"] satisfies StateChange[]);

export const changesBodySchema = model(
  "Changes",
  z.strictObject({
    change: stateChangeSchema,
    ids: z.array(taskIdSchema).min(1).max(maxChangedTasks).meta({ description: "the tasks" }),
    states: z
      .array(z.enum(finalStates))
      .min(1)
      .optional()
      .meta({ description: "for retry: tasks in other states are refused; default: all final states" }),
  }),
);

const changeResultSchema = z.object({
  id: taskIdSchema,
  outcome: z.enum(["changed", "refused", "missing", "locked", "failed"]).meta({
    description:
      "changed, or why not: its state does not allow it, there is no such task, another transaction has locked it, or the server reported an error",
  }),
  state: textOrNull("its state before; null if missing or failed"),
  text: text("the result in words"),
});

export const changesSchema = object("ChangeResults", {
  changed: whole("how many tasks were changed"),
  tasks: list(changeResultSchema, "a result for each task, in the order of the ids"),
});

export const changeEffectsSchema = object("ChangeEffects", {
  gone: countSchema.meta({
    description:
      "of a stop or deletion: how many other tasks wait for these and become GONE; of a retry: how many of these become GONE instead of running, because what they wait for has not ended as they require",
  }),
  causes: readonlyList(
    z.object({ id: taskIdSchema, state: text() }),
    "of a retry: the first of the tasks because of which others become GONE",
  ),
  pauses: readonlyList(
    z.object({ group: textOrNull("null: the whole table"), tasks: whole("how many of the tasks it concerns") }),
    "of a retry or run-now: the first of the pauses that keep tasks from starting",
  ),
  paused: countSchema.meta({ description: "how many of the tasks these pauses keep from starting" }),
});

export const endBlockerBodySchema = model(
  "EndBlocker",
  z.strictObject({
    pid: z.int32().min(1).meta({ description: "of a blocker of one of the task's reasons" }),
    started: textSchema.meta({ description: "its `started`" }),
    how: z.enum(["cancel", "terminate"]).meta({ description: "its statement is cancelled, or its connection ended" }),
  }),
);

export const endedBlockerSchema = object("EndedBlocker", { pid: whole() });

const groupSchema = textSchema.nullable().optional().meta({ description: "null or left out: the whole table" });

export const pauseBodySchema = model(
  "Pause",
  z.strictObject({
    group: groupSchema,
    reason: textSchema.max(1_000).nullable().optional().meta({ description: "shown to other users" }),
  }),
);

export const resumeBodySchema = model("Resume", z.strictObject({ group: groupSchema }));

export const pauseResultSchema = object("PauseResult", {
  group: textOrNull(),
  changed: flag("false: it already was as requested"),
  paused: flag("whether it is paused now; a group also if the whole table is"),
});

const valueSchemas: Readonly<Record<ReturnType<typeof valueKind>, z.ZodType>> = {
  id: taskIdSchema,
  ids: z.array(taskIdSchema).max(maxItems),
  number: z.int32(),
  interval: textSchema,
  time: textSchema,
  flag: z.boolean(),
  char: textSchema,
  text: textSchema,
  list: z.array(textSchema).max(maxItems),
  json: z.union([z.array(z.unknown()), z.record(z.string(), z.unknown())]),
};

const exceptions: Readonly<Partial<Record<ColumnName, z.ZodType>>> = { upon: z.enum(["done", "fail", "end"]) };

// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the compiler cannot follow the names
const newTaskShape = Object.fromEntries(
  columnList
    .filter(({ by }) => by === "producer")
    .map((column) => {
      const value = exceptions[column.name] ?? valueSchemas[valueKind(column)];
      const schema = column.nullable === true ? value.nullable().optional() : value.optional();
      return [column.name, schema.meta({ description: describeColumn(column) })];
    }),
) as unknown as {
  readonly [Name in ColumnsWith<{ readonly by: "producer" }>]: z.ZodOptional<
    z.ZodType<Exclude<NewTask[Name], undefined>>
  >;
};

/** A task to add, as in the library (`NewTask`). */
export const newTaskSchema = model(
  "NewTask",
  z.strictObject({
    ...newTaskShape,
    input: newTaskShape.input.meta({ description: "the SQL to run; required unless it is copied" }),
    plan: newTaskShape.plan.meta({ description: "when to start: ISO 8601, or another time in PostgreSQL's syntax" }),
    delay: textSchema.optional().meta({ description: "interval from now after which to start, instead of plan" }),
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

export const taskProblemsSchema = object("TaskProblems", { errors: list(valueErrorSchema, "none if it can be added") });

export const addedTaskSchema = object("AddedTask", { id: taskIdSchema });

export type ChangesBody = z.infer<typeof changesBodySchema>;
export type ChangeResults = z.infer<typeof changesSchema>;
export type EndBlockerBody = z.infer<typeof endBlockerBodySchema>;
export type PauseBody = z.infer<typeof pauseBodySchema>;
export type PauseResult = z.infer<typeof pauseResultSchema>;
export type NewTaskBody = z.infer<typeof newTaskSchema>;
export type TaskProblems = z.infer<typeof taskProblemsSchema>;
export type AddedTask = z.infer<typeof addedTaskSchema>;
export type ChangedTask = z.infer<typeof changedTaskSchema>;
