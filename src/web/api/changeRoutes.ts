import { z } from "zod";
import type { Log } from "../../shared/log.js";
import { readOptionColumns } from "../../tasks/queries/optionColumns.js";
import type { WebTables } from "../data/webTables.js";
import type { WebTable } from "../data/webTable.js";
import type { Sender } from "../http/sender.js";
import { addOne, changeMany, changeOne, pause, resume } from "./changeHandlers.js";
import {
  addedTaskSchema,
  changedTaskSchema,
  changesBodySchema,
  changesSchema,
  columnsInfoSchema,
  newTaskSchema,
  pauseBodySchema,
  pauseResultSchema,
  resumeBodySchema,
} from "./changeSchemas.js";
import { defineBodyRoute, defineRoute, type Route } from "./route.js";
import { tablePathSchema, taskPathSchema } from "./schemas.js";

const noParameters = z.strictObject({});

const actions = [
  { action: "stop", summary: "stop a waiting or running task: its state becomes STOP" },
  { action: "retry", summary: "run a finished task again: its plan becomes now" },
  { action: "run-now", summary: "run a planned task now: its plan becomes now" },
  { action: "pause", summary: "pause a schedule that waits: its plan becomes infinity" },
  { action: "resume", summary: "resume a paused schedule: its plan becomes its next time" },
  { action: "delete", summary: "delete a task that does not run" },
] as const;

/**
 * Returns the operations that add and change tasks, and pause and resume groups and tables. The log says who has changed
 * what, because all users have the same token.
 */
export function changeRoutes(tables: WebTables, log: Log): Route[] {
  const note = (sender: Sender, { key }: WebTable, action: string, what: object): void => {
    log.info({ entry: key, action, ...what, ...sender }, "changed over HTTP");
  };
  return [
    defineBodyRoute({
      method: "post",
      path: "/tables/{table}/tasks",
      summary: "add a task; columns that are left out take their defaults",
      parameters: tablePathSchema,
      query: noParameters,
      body: newTaskSchema,
      response: addedTaskSchema,
      status: 201,
      handle: async ({ parameters, body, sender }) => {
        const table = tables.byId(parameters.table);
        const added = await addOne(table, body);
        note(sender, table, "add", { changed: 1, ids: [added.id] });
        return added;
      },
    }),
    defineRoute({
      method: "get",
      path: "/tables/{table}/columns",
      summary: "the columns to which a new task can give a value, with their defaults",
      parameters: tablePathSchema,
      query: noParameters,
      response: columnsInfoSchema,
      handle: async ({ parameters }) => {
        const { pool, table } = tables.byId(parameters.table);
        return { columns: await pool.read((client) => readOptionColumns(client, table)) };
      },
    }),
    defineBodyRoute({
      method: "post",
      path: "/tables/{table}/changes",
      summary: "stop, retry, run now or delete up to 500 tasks, and say what came of each",
      parameters: tablePathSchema,
      query: noParameters,
      body: changesBodySchema,
      response: changesSchema,
      handle: async ({ parameters, body, sender }) => {
        const table = tables.byId(parameters.table);
        const results = await changeMany(table, body);
        const ids = results.tasks.filter(({ outcome }) => outcome === "changed").map(({ id }) => id);
        if (ids.length > 0) note(sender, table, body.change, { changed: results.changed, ids });
        return results;
      },
    }),
    defineBodyRoute({
      method: "post",
      path: "/tables/{table}/pause",
      summary: "start no more tasks of a group, or of the whole table; running ones finish",
      parameters: tablePathSchema,
      query: noParameters,
      body: pauseBodySchema,
      response: pauseResultSchema,
      handle: async ({ parameters, body, sender }) => {
        const table = tables.byId(parameters.table);
        const result = await pause(table, body);
        if (result.changed) note(sender, table, "pause", { group: result.group });
        return result;
      },
    }),
    defineBodyRoute({
      method: "post",
      path: "/tables/{table}/resume",
      summary: "end the pause of a group, or of the whole table",
      parameters: tablePathSchema,
      query: noParameters,
      body: resumeBodySchema,
      response: pauseResultSchema,
      handle: async ({ parameters, body, sender }) => {
        const table = tables.byId(parameters.table);
        const result = await resume(table, body);
        if (result.changed) note(sender, table, "resume", { group: result.group });
        return result;
      },
    }),
    ...actions.map(({ action, summary }) =>
      defineRoute({
        method: "post",
        path: `/tables/{table}/tasks/{id}/${action}`,
        summary,
        parameters: taskPathSchema,
        query: noParameters,
        response: changedTaskSchema,
        handle: async ({ parameters, sender }) => {
          const table = tables.byId(parameters.table);
          const changed = await changeOne(table, action, parameters.id);
          note(sender, table, action, { changed: 1, ids: [changed.id] });
          return changed;
        },
      }),
    ),
  ];
}
