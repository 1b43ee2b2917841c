import { z } from "zod";
import { model, taskIdSchema, timeSchema, wholeNumber } from "./model.js";
import { healthSchema, managerSchema, tableNames } from "./schemas.js";

const extent = {
  scanned: z.int().meta({ description: "how many of the newest rows were read" }),
  complete: z.boolean().meta({ description: "false: there are more rows, for which the time was too short" }),
};

const seconds = z.number().nullable().meta({ description: "seconds; null if there were no such runs" });

export const runHistorySchema = model(
  "RunHistory",
  z.object({
    hours: z
      .array(
        z.object({
          at: z.number().meta({ description: "start of the hour, in seconds since 1970" }),
          count: z.number().meta({ description: "runs that ended as DONE or FAIL" }),
          failed: z.number(),
          runP50: seconds,
          runP95: seconds,
          runMax: seconds,
          waitP50: seconds.meta({ description: "seconds from plan to start" }),
          waitP95: seconds.meta({ description: "seconds from plan to start" }),
        }),
      )
      .readonly()
      .meta({ description: "one per hour, oldest first" }),
    ...extent,
  }),
);

export const runHistoryQuerySchema = z.strictObject({ hours: wholeNumber(720, 24) });

export const errorGroupsSchema = model(
  "ErrorGroups",
  z.object({
    errors: z
      .array(
        z.object({
          error: z.string().meta({ description: "the first line, at most 1,000 characters" }),
          count: z.number(),
          lastSeen: timeSchema.nullable().meta({ description: "latest stop of these tasks" }),
          lastId: taskIdSchema.meta({ description: "largest id of these tasks" }),
        }),
      )
      .readonly()
      .meta({ description: "the most frequent first" }),
    more: z.boolean().meta({ description: "true: there are more than `limit`" }),
    ...extent,
  }),
);

export const errorGroupsQuerySchema = z.strictObject({ limit: wholeNumber(1_000, 100) });

const processSchema = model(
  "Process",
  z.object({
    pid: z.int().meta({ description: "process id of the server process (backend) that serves the connection" }),
    address: z
      .string()
      .nullable()
      .meta({ description: "IP address of the process; null for a Unix socket, or if hidden" }),
    since: timeSchema.nullable().meta({ description: "when it connected; null if the role may not see it" }),
    user: z.string().nullable(),
    isThis: z.boolean().meta({ description: "whether it is the process that has answered" }),
  }),
);

export const processesSchema = model(
  "Processes",
  z.object({
    name: z.string().meta({ description: "name of the cluster (`pg_conf.name`)" }),
    control: z.object({ server: z.string(), database: z.string() }),
    self: z.object({
      role: healthSchema.shape.role,
      since: timeSchema,
      pid: z.int().meta({ description: "process id on its own machine" }),
      host: z.string(),
      version: z.string().meta({ description: "of pg-task" }),
      node: z.string().meta({ description: "version of Node.js" }),
    }),
    leader: processSchema.nullable().meta({ description: "null: no process leads, or it is unknown" }),
    standbys: z.array(processSchema),
    otherLeaders: z
      .array(
        z.object({ pid: z.int(), address: z.string().nullable(), since: timeSchema.nullable(), database: z.string() }),
      )
      .meta({ description: "leaders of other clusters on the control server, if this cluster has no leader" }),
    server: z
      .object({ version: z.string(), connections: z.int(), maxConnections: z.int() })
      .nullable()
      .meta({ description: "the control server" }),
    error: z.string().nullable().meta({ description: "why leader, standbys and server are unknown" }),
    sessions: z.object({ most: z.int() }),
    managers: z.array(
      z.object({
        ...tableNames,
        manager: managerSchema.nullable().meta({ description: "the table's manager in this process" }),
        process: processSchema.nullable().meta({ description: "the connection of the manager that serves the table" }),
        sessions: z.int().nullable().meta({ description: "open sessions of all processes" }),
        running: z.int().nullable().meta({ description: "sessions that run a task" }),
        serverVersion: z.string().nullable(),
        tableVersion: z.int().nullable().meta({ description: "how far the table is migrated" }),
        latestVersion: z.int().meta({ description: "how far this pg-task migrates tables" }),
        error: z.string().nullable().meta({ description: "why the other values are null" }),
      }),
    ),
  }),
);

export type Processes = z.infer<typeof processesSchema>;
export type ProcessInfo = z.infer<typeof processSchema>;
