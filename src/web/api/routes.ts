import { z } from "zod";
import type { ClusterView } from "../../shared/clusterStatus.js";
import type { Log } from "../../shared/log.js";
import { pollLimits, readGroups } from "../../tasks/queries/groups.js";
import { changeRoutes } from "./changeRoutes.js";
import { dependencyGraphSchema } from "./dependencySchemas.js";
import { defineRoute, type Route } from "./route.js";
import {
  nextQuerySchema,
  ruleTimesSchema,
  scheduleQuerySchema,
  clusterSchema,
  groupsSchema,
  tableHistorySchema,
  tablePathSchema,
  tableSchema,
  taskQuerySchema,
  taskDetailSchema,
  taskPathSchema,
  taskListSchema,
} from "./schemas.js";
import { schedulesSchema } from "./scheduleSchemas.js";
import type { WebTables } from "../data/webTables.js";
import { readTaskDependencies, readTaskDetail, readTaskList } from "./taskHandlers.js";
import { readNext, readScheduleList } from "./scheduleHandlers.js";
import type { ControlDatabase } from "./processHandlers.js";
import { readRoutes } from "./readRoutes.js";
import { readTableInfo } from "./status.js";

const noParameters = z.strictObject({});

/** Maximum number of groups in a response. */
const maxGroups = 50;

/** Returns all operations of the API except the event stream. */
export function apiRoutes(context: {
  readonly cluster: ClusterView;
  readonly tables: WebTables;
  readonly log: Log;
  readonly version: string;
  /** Returns the maximum number of executor sessions (`pg_conf.max`). */
  readonly maxSessions: () => number;
  readonly control: () => ControlDatabase;
}): Route[] {
  const { cluster, tables } = context;
  return [
    defineRoute({
      method: "get",
      path: "/tables",
      summary: "this process and its tables, with their key figures",
      parameters: noParameters,
      query: noParameters,
      response: clusterSchema,
      handle: async () => ({
        role: cluster.role,
        ready: cluster.ready,
        since: cluster.since.toISOString(),
        version: context.version,
        now: new Date().toISOString(),
        sessions: { most: context.maxSessions() },
        tables: await Promise.all(tables.all.map((table) => readTableInfo(cluster, table))),
      }),
    }),
    defineRoute({
      method: "get",
      path: "/tables/{table}",
      summary: "one table with its key figures",
      parameters: tablePathSchema,
      query: noParameters,
      response: tableSchema,
      handle: async ({ parameters }) => await readTableInfo(cluster, tables.byId(parameters.table)),
    }),
    defineRoute({
      method: "get",
      path: "/tables/{table}/history",
      summary: "activity of the table's manager in this process during the last hour",
      parameters: tablePathSchema,
      query: noParameters,
      response: tableHistorySchema,
      handle: async ({ parameters }) => tables.byId(parameters.table).history.read(),
    }),
    ...readRoutes(context),
    defineRoute({
      method: "get",
      path: "/tables/{table}/groups",
      summary: "groups with running, waiting or recently finished tasks",
      parameters: tablePathSchema,
      query: noParameters,
      response: groupsSchema,
      handle: async ({ parameters }) => {
        const { pool, table } = tables.byId(parameters.table);
        return await pool.read((client) =>
          readGroups(client, table, { limit: maxGroups, ended: true, limits: pollLimits }),
        );
      },
    }),
    defineRoute({
      method: "get",
      path: "/tables/{table}/tasks",
      summary: "a page of tasks by their ids",
      parameters: tablePathSchema,
      query: taskQuerySchema,
      response: taskListSchema,
      handle: async ({ parameters, query }) => {
        const { pool, table } = tables.byId(parameters.table);
        return await pool.read((client) => readTaskList(client, table, query));
      },
    }),
    defineRoute({
      method: "get",
      path: "/tables/{table}/tasks/{id}",
      summary: "one task with all columns in full, and its chain",
      parameters: taskPathSchema,
      query: noParameters,
      response: taskDetailSchema,
      handle: async ({ parameters: { table: tableId, id } }) => {
        const { pool, table, entry } = tables.byId(tableId);
        const explainContext = {
          entry,
          entries: tables.all.map((each) => each.entry),
          maxSessions: context.maxSessions(),
          // Null means unknown: a process that does not lead cannot tell whether another process leads.
          hasLeader: async () => (cluster.role === "leader" ? true : null),
        };
        return await pool.read((client) => readTaskDetail(client, table, id, explainContext));
      },
    }),
    defineRoute({
      method: "get",
      path: "/tables/{table}/tasks/{id}/dependencies",
      summary: "what a task waits for and what waits for it, as nodes and edges of a graph",
      parameters: taskPathSchema,
      query: noParameters,
      response: dependencyGraphSchema,
      handle: async ({ parameters }) => {
        const { pool, table } = tables.byId(parameters.table);
        return await pool.read((client) => readTaskDependencies(client, table, parameters.id));
      },
    }),
    ...scheduleRoutes(tables),
    ...changeRoutes(tables, context.log),
  ];
}

/** Returns the operations on schedules that only read. */
function scheduleRoutes(tables: WebTables): Route[] {
  return [
    defineRoute({
      method: "get",
      path: "/tables/{table}/schedules",
      summary: "schedules by their planned times, with their coming times and last runs",
      parameters: tablePathSchema,
      query: scheduleQuerySchema,
      response: schedulesSchema,
      handle: async ({ parameters, query }) => {
        const { pool, table } = tables.byId(parameters.table);
        return await pool.read((client) => readScheduleList(client, table, query));
      },
    }),
    defineRoute({
      method: "get",
      path: "/tables/{table}/next",
      summary: "the next times of a rule, computed by the table's server",
      parameters: tablePathSchema,
      query: nextQuerySchema,
      response: ruleTimesSchema,
      handle: async ({ parameters, query }) => {
        const { pool, table, entry } = tables.byId(parameters.table);
        const defaultZone = entry.parameters["pg_task.zone"];
        return await pool.read((client) => readNext(client, table, { ...query, defaultZone }));
      },
    }),
  ];
}
