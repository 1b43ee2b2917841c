import type { Log } from "../../shared/log.js";
import { readOptionColumns } from "../../tasks/queries/columnDefaults.js";
import type { WebTable } from "../data/webTable.js";
import type { Sender } from "../http/mount.js";
import { addOne, checkOne } from "./addHandlers.js";
import { bulkRoutes } from "./bulkRoutes.js";
import { checkChange, changeMany, changeOne, endBlockerOf, pause, resume } from "./changeHandlers.js";
import {
  addedTaskSchema,
  changedTaskSchema,
  changeEffectsSchema,
  changesBodySchema,
  changesSchema,
  endBlockerBodySchema,
  endedBlockerSchema,
  newTaskSchema,
  pauseBodySchema,
  pauseResultSchema,
  resumeBodySchema,
  taskProblemsSchema,
} from "./changeSchemas.js";
import { readProcesses } from "./processHandlers.js";
import { defineRoute, routesOfTables, type ApiContext, type OnTable, type Route } from "./route.js";
import { readNext, readScheduleList } from "./scheduleHandlers.js";
import {
  clusterSchema,
  columnsInfoSchema,
  countSchema,
  errorGroupsQuerySchema,
  errorGroupsSchema,
  groupQuerySchema,
  groupsSchema,
  processesSchema,
  runHistoryQuerySchema,
  runHistorySchema,
  tableHistorySchema,
  tableSchema,
} from "./schemas.js";
import { readTableInfo } from "./status.js";
import { readMatches, readTaskDependencies, readTaskDetail, readTaskList } from "./taskHandlers.js";
import {
  dependencyGraphSchema,
  matchesQuerySchema,
  nextQuerySchema,
  ruleTimesSchema,
  scheduleQuerySchema,
  schedulesSchema,
  taskDetailSchema,
  taskListSchema,
  taskQuerySchema,
} from "./taskSchemas.js";

const actions = [
  { action: "stop", summary: "stop a waiting or running task: its state becomes STOP" },
  { action: "retry", summary: "run a finished task again: its plan becomes now" },
  { action: "retry-without-waiting", summary: "the same without waiting for others: its `after` becomes null" },
  { action: "run-now", summary: "run a planned task now: its plan becomes now" },
  { action: "run-without-waiting", summary: "let a task no longer wait for others: its `after` becomes null" },
  { action: "pause", summary: "pause a schedule that waits: its plan becomes infinity" },
  { action: "resume", summary: "resume a paused schedule: its plan becomes its next time" },
  { action: "delete", summary: "delete a task that does not run" },
] as const;

const pauseActions = [
  {
    action: "pause",
    summary: "start no more tasks of a group, or of the whole table; running ones finish",
    body: pauseBodySchema,
    change: pause,
  },
  {
    action: "resume",
    summary: "end the pause of a group, or of the whole table",
    body: resumeBodySchema,
    change: resume,
  },
] as const;

/** All but the event stream. */
export function apiRoutes(context: ApiContext): Route[] {
  const { cluster, tables, version, maxSessions } = context;
  const onTable = routesOfTables(tables);
  return [
    defineRoute("get", "/tables", {
      summary: "this process and its tables, with their key figures",
      response: clusterSchema,
      handle: async () => ({
        role: cluster.role,
        ready: cluster.ready,
        since: cluster.since.toISOString(),
        version,
        now: new Date().toISOString(),
        sessions: { most: maxSessions() },
        tables: await Promise.all(tables.all.map((table) => readTableInfo(cluster, table))),
      }),
    }),
    defineRoute("get", "/processes", {
      summary: "the leader, the standbys, and the managers and sessions of the tables",
      response: processesSchema,
      handle: async () => await readProcesses(context),
    }),
    ...readRoutes(context, onTable),
    ...changeRoutes(context.log, onTable),
  ];
}

function readRoutes({ cluster, tables, maxSessions }: ApiContext, onTable: OnTable): Route[] {
  return [
    onTable("get", "", {
      summary: "one table with its key figures",
      response: tableSchema,
      handle: async ({ webTable }) => await readTableInfo(cluster, webTable),
    }),
    onTable("get", "/history", {
      summary: "activity of the table's manager in this process during the last hour",
      response: tableHistorySchema,
      handle: async ({ webTable }) => webTable.history.read(),
    }),
    onTable("get", "/runs", {
      summary: "the runs of the last hours, by the hour in which they ended",
      query: runHistoryQuerySchema,
      response: runHistorySchema,
      handle: async ({ webTable, query }) => await webTable.runHistory(query.hours),
    }),
    onTable("get", "/errors", {
      summary: "tasks that have an error, grouped by the first line of the error",
      query: errorGroupsQuerySchema,
      response: errorGroupsSchema,
      handle: async ({ webTable, query }) => await webTable.errorGroups(query.limit),
    }),
    onTable("get", "/groups", {
      summary: "groups with running, waiting or recently finished tasks",
      query: groupQuerySchema,
      response: groupsSchema,
      handle: async ({ webTable, query }) => await webTable.groups(query),
    }),
    onTable("get", "/tasks", {
      summary: "a page of tasks by their ids",
      query: taskQuerySchema,
      response: taskListSchema,
      handle: async ({ webTable, query }) =>
        await webTable.pool.read((client) => readTaskList(client, webTable, query)),
    }),
    onTable("get", "/matches", {
      summary: "how many tasks match a filter, exact up to 10,000, as far as they can be counted in half a second",
      query: matchesQuerySchema,
      response: countSchema,
      handle: async ({ webTable, query }) => await webTable.pool.read((client) => readMatches(client, webTable, query)),
    }),
    onTable("get", "/tasks/{id}", {
      summary: "one task with all columns in full, and its chain",
      response: taskDetailSchema,
      handle: async ({ webTable: { pool, table, entry }, id }) => {
        const explainContext = {
          entry,
          entries: tables.all.map((each) => each.entry),
          maxSessions: maxSessions(),
          // Null means unknown: a process that does not lead cannot tell whether another process leads.
          hasLeader: async () => (cluster.role === "leader" ? true : null),
        };
        return await pool.read((client) =>
          readTaskDetail(client, table, id, { ...explainContext, lockOn: client, locksRarely: true }),
        );
      },
    }),
    onTable("get", "/tasks/{id}/dependencies", {
      summary: "what a task waits for and what waits for it, as nodes and edges of a graph",
      response: dependencyGraphSchema,
      handle: async ({ webTable: { pool, table }, id }) =>
        await pool.read((client) => readTaskDependencies(client, table, id)),
    }),
    onTable("get", "/schedules", {
      summary: "schedules by their planned times, with their coming times and last runs",
      query: scheduleQuerySchema,
      response: schedulesSchema,
      handle: async ({ webTable: { pool, table }, query }) =>
        await pool.read((client) => readScheduleList(client, table, query)),
    }),
    onTable("get", "/next", {
      summary: "the next times of a rule, computed by the table's server",
      query: nextQuerySchema,
      response: ruleTimesSchema,
      handle: async ({ webTable: { pool, table, entry }, query }) => {
        const defaultZone = entry.parameters["pg_task.zone"];
        return await pool.read((client) => readNext(client, table, { ...query, defaultZone }));
      },
    }),
    onTable("get", "/columns", {
      summary: "the columns to which a new task can give a value, with their defaults",
      response: columnsInfoSchema,
      handle: async ({ webTable: { pool, table } }) => ({
        columns: await pool.read((client) => readOptionColumns(client, table)),
      }),
    }),
  ];
}

function changeRoutes(log: Log, onTable: OnTable): Route[] {
  /** Says who has changed what, because all users have the same token. */
  const note = (sender: Sender, { key }: WebTable, action: string, what: object): void =>
    log.info({ entry: key, action, ...what, ...sender }, "changed over HTTP");
  return [
    onTable("post", "/tasks", {
      summary: "add a task; columns that are left out take their defaults",
      body: newTaskSchema,
      response: addedTaskSchema,
      status: 201,
      handle: async ({ webTable, body, sender }) => {
        const added = await addOne(webTable, body);
        note(sender, webTable, "add", { changed: 1, ids: [added.id] });
        return added;
      },
    }),
    onTable("post", "/tasks/check", {
      summary: "say all that is wrong with a task, without adding it",
      body: newTaskSchema,
      response: taskProblemsSchema,
      handle: async ({ webTable, body }) => await checkOne(webTable, body),
    }),
    onTable("post", "/changes", {
      summary: "stop, retry, run now or delete up to 500 tasks, and say what came of each",
      body: changesBodySchema,
      response: changesSchema,
      handle: async ({ webTable, body, sender }) => {
        const results = await changeMany(webTable, body);
        const ids = results.tasks.filter(({ outcome }) => outcome === "changed").map(({ id }) => id);
        if (ids.length > 0) note(sender, webTable, body.change, { changed: results.changed, ids });
        return results;
      },
    }),
    onTable("post", "/changes/check", {
      summary: "say what a change would bring about for other tasks, and whether pauses keep the tasks from starting",
      body: changesBodySchema,
      response: changeEffectsSchema,
      handle: async ({ webTable, body }) => await checkChange(webTable, body),
    }),
    ...pauseActions.map(({ action, summary, body: bodySchema, change }) =>
      onTable("post", `/${action}`, {
        summary,
        body: bodySchema,
        response: pauseResultSchema,
        handle: async ({ webTable, body, sender }) => {
          const result = await change(webTable, body);
          if (result.changed) note(sender, webTable, action, { group: result.group });
          return result;
        },
      }),
    ),
    onTable("post", "/tasks/{id}/end-blocker", {
      summary: "cancel the statement, or end the connection, of another session that keeps this task waiting",
      body: endBlockerBodySchema,
      response: endedBlockerSchema,
      handle: async ({ webTable, id, body, sender }) => {
        const ended = await endBlockerOf(webTable, id, body);
        note(sender, webTable, "end-blocker", { ids: [id], pid: body.pid, how: body.how });
        return ended;
      },
    }),
    ...bulkRoutes(onTable, note),
    ...actions.map(({ action, summary }) =>
      onTable("post", `/tasks/{id}/${action}`, {
        summary,
        response: changedTaskSchema,
        handle: async ({ webTable, id, sender }) => {
          const changed = await changeOne(webTable, action, id);
          note(sender, webTable, action, { changed: 1, ids: [changed.id] });
          return changed;
        },
      }),
    ),
  ];
}
