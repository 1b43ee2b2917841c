import { z } from "zod";
import type { ClusterView } from "../shared/cluster.js";
import { WebProblem } from "./problem.js";
import { changeTask, type TaskAction } from "./queries/changeTask.js";
import { groupCounts } from "./queries/groupCounts.js";
import { listTasks } from "./queries/listTasks.js";
import { readTask } from "./queries/readTask.js";
import { children, parents } from "./queries/relatives.js";
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
import type { WebTables } from "./tables.js";
import { tableView } from "./views.js";

const nothing = z.strictObject({});

const actions: readonly {
  readonly action: TaskAction;
  readonly summary: string;
  readonly from: string;
}[] = [
  {
    action: "stop",
    summary: "stop a task that waits or runs: it gets the state STOP",
    from: "PLAN, TAKE or WORK",
  },
  {
    action: "retry",
    summary: "run a task again that has ended: planned for now",
    from: "DONE, FAIL, GONE or STOP",
  },
  {
    action: "run-now",
    summary: "plan a waiting task for now",
    from: "PLAN, with a plan to come",
  },
];

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
      summary: "the groups among the newest rows",
      parameters: tablePathSchema,
      query: nothing,
      answer: groupsSchema,
      handle: async ({ parameters }) => {
        const { connections, table } = tables.byId(parameters.table);
        return await connections.read((client) => groupCounts(client, table));
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
        return await connections.read((client) => listTasks(client, table, query));
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
        const { connections, table } = tables.byId(tableId);
        return await connections.read(async (client) => {
          const task = await readTask(client, table, id);
          if (task === null) throw notThere(id);
          const born = await children(client, table, id);
          return {
            task,
            parents: await parents(client, table, id),
            children: born.tasks,
            childrenComplete: born.complete,
          };
        });
      },
    }),
    ...actions.map(({ action, summary, from }) =>
      route({
        method: "post",
        path: `/tables/{table}/tasks/{id}/${action}`,
        summary,
        parameters: taskPathSchema,
        query: nothing,
        answer: changedTaskSchema,
        handle: async ({ parameters: { table: tableId, id } }) => {
          const { connections, table, watch } = tables.byId(tableId);
          const outcome = await connections.write((client) =>
            changeTask(client, table, id, action),
          );
          if (outcome === null) throw notThere(id);
          if (!outcome.changed) {
            throw new WebProblem(
              "CONFLICT",
              `expected task ${id} in ${from}, got ${outcome.state}: it was not changed`,
            );
          }
          watch.touch();
          return { id, state: outcome.state };
        },
      }),
    ),
  ];
}

const notThere = (id: string): WebProblem =>
  new WebProblem("NOT_FOUND", `there is no task ${id} in this table`);
