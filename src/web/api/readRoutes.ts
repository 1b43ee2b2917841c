import { z } from "zod";
import type { ClusterView } from "../../shared/clusterStatus.js";
import type { WebTables } from "../data/webTables.js";
import { readProcesses, type ControlDatabase } from "./processHandlers.js";
import {
  errorGroupsQuerySchema,
  errorGroupsSchema,
  processesSchema,
  runHistoryQuerySchema,
  runHistorySchema,
} from "./readSchemas.js";
import { defineRoute, type Route } from "./route.js";
import { tablePathSchema } from "./schemas.js";

const noParameters = z.strictObject({});

/** Returns the operations that read processes, errors and the runs of the last hours. */
export function readRoutes(context: {
  readonly cluster: ClusterView;
  readonly tables: WebTables;
  readonly version: string;
  readonly maxSessions: () => number;
  readonly control: () => ControlDatabase;
}): Route[] {
  const { cluster, tables, version } = context;
  return [
    defineRoute({
      method: "get",
      path: "/processes",
      summary: "the leader, the standbys, and the managers and sessions of the tables",
      parameters: noParameters,
      query: noParameters,
      response: processesSchema,
      handle: async () =>
        await readProcesses({
          cluster,
          tables: tables.all,
          control: context.control(),
          version,
          maxSessions: context.maxSessions(),
        }),
    }),
    defineRoute({
      method: "get",
      path: "/tables/{table}/runs",
      summary: "the runs of the last hours, by the hour in which they ended",
      parameters: tablePathSchema,
      query: runHistoryQuerySchema,
      response: runHistorySchema,
      handle: async ({ parameters, query }) => await tables.byId(parameters.table).runHistory(query.hours),
    }),
    defineRoute({
      method: "get",
      path: "/tables/{table}/errors",
      summary: "tasks that have an error, grouped by the first line of the error",
      parameters: tablePathSchema,
      query: errorGroupsQuerySchema,
      response: errorGroupsSchema,
      handle: async ({ parameters, query }) => await tables.byId(parameters.table).errorGroups(query.limit),
    }),
  ];
}
