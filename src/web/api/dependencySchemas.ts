import { z } from "zod";
import { model, taskIdSchema, timeSchema } from "./model.js";

const dependencyNodeSchema = model(
  "DependencyNode",
  z.object({
    id: taskIdSchema,
    state: z.string().nullable().meta({ description: "null: the row is gone; everything else is null or 0 then" }),
    group: z.string().nullable(),
    upon: z.string().nullable().meta({ description: "how its predecessors have to end: done, fail or end" }),
    plan: timeSchema.nullable().meta({ description: "the time in `due` while it waits for others" }),
    input: z.string().nullable().meta({ description: "the first line, at most 300 characters" }),
    error: z.string().nullable().meta({ description: "the first line, at most 300 characters" }),
    predecessors: z.int().meta({ description: "number of tasks in `after`" }),
    waitsFor: z.int().meta({ description: "for how many of them it still waits" }),
    morePredecessors: z.int().meta({ description: "how many of them are not among the nodes" }),
    moreDependents: z.int().meta({ description: "how many tasks that wait for it are not among the nodes" }),
  }),
);

const dependencySchema = model(
  "Dependency",
  z.object({
    task: taskIdSchema,
    predecessor: taskIdSchema,
    status: z.enum(["waits", "done", "failed", "over"]).meta({
      description:
        "waits: the task waits for the predecessor; done, failed: the predecessor has ended as DONE, or otherwise (a row that was gone when pg-task looked it up counts as done, one that was deleted later as failed); over: the task no longer waits, although the predecessor has not ended or was planned again",
    }),
  }),
);

export const dependencyGraphSchema = model(
  "DependencyGraph",
  z.object({
    nodes: z.array(dependencyNodeSchema).meta({
      description: "the task, its predecessors over up to 20 levels (at most 100 tasks), and its dependents (likewise)",
    }),
    edges: z.array(dependencySchema).meta({ description: "the dependencies between these nodes" }),
    formerComplete: z.boolean().meta({ description: "false: there may be more tasks that no longer wait for it" }),
  }),
);
