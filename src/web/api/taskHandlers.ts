import type { TaskFilter } from "../../tasks/types.js";
import { omitUndefined } from "../../shared/omitUndefined.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client, Queryable } from "../../shared/postgres/client.js";
import { readDependencyGraph, type DependencyGraph } from "../../tasks/queries/dependencyGraph.js";
import { readChain } from "../../tasks/queries/taskChain.js";
import { batched } from "../../tasks/batched.js";
import { explainTask } from "../../tasks/explain/explainTask.js";
import type { Reason } from "../../tasks/explain/reason.js";
import { readCopy } from "../../tasks/copies.js";
import { taskStates } from "../../shared/taskState.js";
import { listTasks, type TaskList, readSummaries } from "../../tasks/queries/listTasks.js";
import { readColumnDefaults } from "../../tasks/queries/columnDefaults.js";
import { longTextColumns, readTask, readTextSizes } from "../../tasks/queries/readTask.js";
import { ApiError } from "../errors.js";
import type { FullTask, TaskDetail, TaskQuery } from "./taskSchemas.js";

/** Of each value in a list, in characters. */
const excerptLength = 300;
/** Of each value of a task that is shown alone, in characters. */
const maxTextLength = 256 * 1024;
/** In ms. */
const listTimeMs = 500;
/** In ms. Short, because an open page makes the request again after every change. */
const chainTimeMs = 100;

/** If the time runs out, the next page continues the scan. */
export async function readTaskList(
  client: Client,
  table: TaskTable,
  { before, after, order, limit, waitingFor, ...query }: TaskQuery,
): Promise<TaskList> {
  const began = performance.now();
  const oldestFirst = order === "oldest";
  const filter = filterFromQuery(query);
  const request = { filter, limit, before, after, oldestFirst, waitingFor, characters: excerptLength };
  return await listTasks(client, table, request, () => performance.now() - began > listTimeMs);
}

function filterFromQuery({
  state,
  group,
  key,
  text,
  from,
  to,
}: Omit<TaskQuery, "before" | "after" | "order" | "limit" | "waitingFor">): TaskFilter {
  const wanted = state?.split(",");
  return omitUndefined({
    states: wanted && taskStates.filter((each) => wanted.includes(each)),
    group,
    key,
    text,
    since: from,
    until: to,
  });
}

/** @throws ApiError NOT_FOUND */
export async function readTaskDetail(
  client: Queryable,
  table: TaskTable,
  id: string,
  context: Omit<Parameters<typeof explainTask>[3], "lockOn">,
): Promise<TaskDetail> {
  const reader = batched(client);
  const [[summary], columns, sizes, defaults, chain, reasons] = await Promise.all([
    readSummaries(reader, table, [id], excerptLength),
    readTask(reader, table, id, maxTextLength),
    readTextSizes(reader, table, id),
    readColumnDefaults(reader, table),
    readChain(reader, table, id, { characters: excerptLength, scanLimitMs: chainTimeMs }),
    explainWaiting(reader, table, id, context),
    // Its second question depends on its first one, so it is asked before it is known whether the reasons need it.
    readCopy(reader, table, context.entry),
  ]);
  if (summary === undefined || columns === null || sizes === null) throw noSuchTask(id);
  const text = (name: (typeof longTextColumns)[number]): FullTask["output"] => {
    const value = columns.get(name) ?? null;
    if (value === null) return null;
    const shown = typeof value === "string" ? value : JSON.stringify(value);
    return { text: shown, bytes: sizes[name] ?? 0 };
  };
  const listed = new Set([...Object.keys(summary), ...longTextColumns]);
  return {
    task: {
      ...summary,
      input: text("input") ?? { text: "", bytes: 0 },
      output: text("output"),
      error: text("error"),
      data: text("data"),
      columns: Object.fromEntries([...columns].filter(([name]) => !listed.has(name))),
    },
    defaults: Object.fromEntries(defaults),
    waits: reasons.map((reason) => reason.text),
    ...chain,
  };
}

/** None if the task does not wait: the reasons take long to find. */
async function explainWaiting(
  reader: Queryable,
  table: TaskTable,
  id: string,
  context: Omit<Parameters<typeof explainTask>[3], "lockOn">,
): Promise<Reason[]> {
  const { rows } = await reader.query<{ waits: boolean }>(
    `SELECT t.state::text = 'PLAN' AND t.owner IS NULL AS waits FROM ${table.qualified} AS t WHERE t.id = $1::bigint`,
    [id],
  );
  return rows[0]?.waits === true ? ((await explainTask(reader, table, id, { ...context, lockOn: null })) ?? []) : [];
}

/** @throws ApiError NOT_FOUND */
export async function readTaskDependencies(client: Client, table: TaskTable, id: string): Promise<DependencyGraph> {
  const graph = await readDependencyGraph(client, table, id, { characters: excerptLength, scanLimitMs: chainTimeMs });
  if (graph === null) throw noSuchTask(id);
  return graph;
}

const noSuchTask = (id: string): ApiError => new ApiError("NOT_FOUND", `there is no task ${id} in this table`);
