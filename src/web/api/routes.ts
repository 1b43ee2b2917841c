import { z } from "zod";
import type { ClusterView } from "../../shared/clusterStatus.js";
import { briefly, readGroups } from "../../tasks/queries/groups.js";
import { route, type Route } from "./route.js";
import {
  changedTaskSchema,
  clusterSchema,
  groupsSchema,
  historySchema,
  tablePathSchema,
  tableSchema,
  taskFilterSchema,
  taskPageSchema,
  taskPathSchema,
  tasksSchema,
} from "./schemas.js";
import type { WebTables } from "../data/webTables.js";
import { changeAnswer, listAnswer, taskAnswer } from "./taskHandlers.js";
import { tableView } from "./views.js";

const nothing = z.strictObject({});

/** Groups that an answer has at most. */
const mostGroups = 50;

const actions = [
  { action: "stop", summary: "stop a task that waits or runs: it gets the state STOP" },
  { action: "retry", summary: "run a task again that has ended: planned for now" },
  { action: "run-now", summary: "plan a waiting task for now" },
] as const;

/** Everything the API answers. */
export function apiRoutes(parts: {
  readonly cluster: ClusterView;
  readonly tables: WebTables;
  readonly version: string;
  /** Most executor sessions. */
  readonly mostSessions: () => number;
}): Route[] {
  const { cluster, tables } = parts;
  return [
    route({
      method: "get",
      path: "/tables",
      summary: "the process and its tables, each with its numbers",
      parameters: nothing,
      query: nothing,
      answer: clusterSchema,
      handle: async () => ({
        role: cluster.role,
        ready: cluster.ready,
        since: cluster.since.toISOString(),
        version: parts.version,
        now: new Date().toISOString(),
        sessions: { most: parts.mostSessions() },
        tables: await Promise.all(tables.all.map((table) => tableView(cluster, table))),
      }),
    }),
    route({
      method: "get",
      path: "/tables/{table}",
      summary: "one table with its numbers",
      parameters: tablePathSchema,
      query: nothing,
      answer: tableSchema,
      handle: async ({ parameters }) => await tableView(cluster, tables.byId(parameters.table)),
    }),
    route({
      method: "get",
      path: "/tables/{table}/history",
      summary: "what this process's manager of the table did in the last hour",
      parameters: tablePathSchema,
      query: nothing,
      answer: historySchema,
      handle: async ({ parameters }) => tables.byId(parameters.table).history.read(),
    }),
    route({
      method: "get",
      path: "/tables/{table}/groups",
      summary: "groups in which something runs, waits, or ended of late",
      parameters: tablePathSchema,
      query: nothing,
      answer: groupsSchema,
      handle: async ({ parameters }) => {
        const { connections, table } = tables.byId(parameters.table);
        return await connections.read((client) =>
          readGroups(client, table, { limit: mostGroups, ended: true, effort: briefly }),
        );
      },
    }),
    route({
      method: "get",
      path: "/tables/{table}/tasks",
      summary: "tasks, newest first, a page at a time",
      parameters: tablePathSchema,
      query: taskFilterSchema,
      answer: tasksSchema,
      handle: async ({ parameters, query }) => {
        const { connections, table } = tables.byId(parameters.table);
        return await connections.read((client) => listAnswer(client, table, query));
      },
    }),
    route({
      method: "get",
      path: "/tables/{table}/tasks/{id}",
      summary: "one task with its texts and its relatives",
      parameters: taskPathSchema,
      query: nothing,
      answer: taskPageSchema,
      handle: async ({ parameters: { table: tableId, id } }) => {
        const { connections, table, entry } = tables.byId(tableId);
        const around = {
          entry,
          entries: tables.all.map((each) => each.entry),
          mostSessions: parts.mostSessions(),
          // A leader somewhere else is none that this process knows of.
          leads: async () => (cluster.role === "leader" ? true : null),
        };
        return await connections.read((client) => taskAnswer(client, table, id, around));
      },
    }),
    ...actions.map(({ action, summary }) =>
      route({
        method: "post",
        path: `/tables/{table}/tasks/{id}/${action}`,
        summary,
        parameters: taskPathSchema,
        query: nothing,
        answer: changedTaskSchema,
        handle: async ({ parameters: { table: tableId, id } }) => {
          const { connections, table, watch } = tables.byId(tableId);
          const changed = await connections.write((client) =>
            changeAnswer(client, table, id, action),
          );
          watch.touch();
          return changed;
        },
      }),
    ),
  ];
}
