import { z } from "zod";
import { model, taskIdSchema, timeSchema } from "./model.js";

const zonedTimeSchema = z.object({
  at: timeSchema,
  wall: z.string().nullable().meta({ description: "the clock's reading in the rule's zone, with its UTC offset" }),
});

const pastRunSchema = z.object({
  id: taskIdSchema,
  state: z.string(),
  start: timeSchema.nullable(),
  stop: timeSchema.nullable(),
  tookMs: z.number().nullable(),
  error: z.string().nullable().meta({ description: "its first line" }),
});

const scheduleSchema = model(
  "Schedule",
  z.object({
    id: taskIdSchema,
    group: z.string().nullable(),
    key: z.string().nullable(),
    rule: z.string().nullable(),
    zone: z.string().nullable(),
    repeat: z.string().nullable(),
    repeatMs: z.number().nullable().meta({ description: "length of repeat, with months of 30 days" }),
    max: z.int(),
    drift: z.boolean(),
    catchup: z.boolean(),
    overlap: z.boolean(),
    state: z.string().meta({ description: "PLAN, TAKE or WORK; that of the last run if its next one is owed" }),
    plan: timeSchema.nullable().meta({ description: "null: paused, or not yet known" }),
    next: z.array(zonedTimeSchema).readonly().meta({ description: "up to three coming times" }),
    paused: z.boolean().meta({ description: "whether the schedule, its group or the table is paused" }),
    pausedItself: z.boolean().meta({ description: "whether the schedule itself is paused" }),
    overdueMs: z
      .number()
      .nullable()
      .meta({ description: "how long ago the time of a waiting schedule came, else null" }),
    owed: z
      .string()
      .nullable()
      .meta({ description: "why the next run could not be planned yet although the row has ended, else null" }),
    problem: z.string().nullable().meta({ description: "why the rule gives no times" }),
    input: z.string().meta({ description: "at most its first 300 characters" }),
    failedTries: z.int().meta({ description: "how many tries of the run that waits have failed" }),
    tryError: z.string().nullable().meta({ description: "first line of the error of the last of these tries" }),
    last: z.array(pastRunSchema).readonly().meta({ description: "up to five last runs, newest first" }),
  }),
);

export const schedulesSchema = model(
  "Schedules",
  z.object({
    schedules: z.array(scheduleSchema).meta({ description: "by planned time; those without one come last" }),
    more: z.boolean().meta({ description: "true: there are more than `limit`" }),
  }),
);
