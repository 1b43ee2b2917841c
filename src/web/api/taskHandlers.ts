import type { ListFilter } from "../../tasks/taskFilter.js";
import { omitUndefined } from "../../shared/omitUndefined.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client, Queryable } from "../../shared/postgres/client.js";
import { readDependencyGraph, type DependencyGraph } from "../../tasks/queries/dependencyGraph.js";
import { readChain } from "../../tasks/queries/taskChain.js";
import { batched } from "../../tasks/batched.js";
import { explainTask } from "../../tasks/explain/explainTask.js";
import { taskStates } from "../../shared/taskState.js";
import { listTasks, type TaskList, readSummaries } from "../../tasks/queries/listTasks.js";
import { countMatches, listSlowest } from "../../tasks/queries/matchingTasks.js";
import type { Count } from "../../shared/count.js";
import { readColumnDefaults } from "../../tasks/queries/columnDefaults.js";
import { longTextColumns, readTask, readTextSizes } from "../../tasks/queries/readTask.js";
import type { WebTable } from "../data/webTable.js";
import type { Entry } from "../../shared/config/types.js";
import { ApiError } from "../errors.js";
import type { FullTask, TaskDetail, TaskFilterQuery, TaskQuery } from "./taskSchemas.js";

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
  { table, entry }: Pick<WebTable, "table" | "entry">,
  { before, after, order, limit, waitingFor, ...query }: TaskQuery,
): Promise<TaskList> {
  const began = performance.now();
  const enough = (): boolean => performance.now() - began > listTimeMs;
  const oldestFirst = order === "oldest";
  const filter = filterFromQuery(query, entry);
  const request = { filter, limit, before, after, oldestFirst, waitingFor, characters: excerptLength };
  if (order !== "slowest") return await listTasks(client, table, request, enough);
  if (after !== undefined)
    throw new ApiError("INVALID", "after: not with order=slowest, which begins with the newest rows");
  return await listSlowest(client, table, request, enough);
}

/** How many tasks match, as far as they can be counted in the time. */
export async function readMatches(
  client: Client,
  { table, entry }: Pick<WebTable, "table" | "entry">,
  { waitingFor, ...query }: TaskFilterQuery,
): Promise<Count> {
  const end = performance.now() + listTimeMs;
  const request = { filter: filterFromQuery(query, entry), waitingFor };
  return await countMatches(client, table, request, () => performance.now() > end);
}

/** @throws ApiError INVALID */
export function filterFromQuery(query: Omit<TaskFilterQuery, "waitingFor">, { parameters }: Entry): ListFilter {
  const { state, group, key, role, share, text, from, to, endedFrom, endedTo, schedule } = query;
  const wanted = state?.split(",");
  const setting = parameters["pg_task.share"];
  if (share !== undefined && setting === "") {
    throw new ApiError("INVALID", "share: tasks of this table have none, because pg_task.share is empty");
  }
  return omitUndefined({
    states: wanted && taskStates.filter((each) => wanted.includes(each)),
    group,
    key,
    role,
    share: share === undefined ? undefined : { name: share, setting },
    text,
    since: from,
    until: to,
    endedSince: endedFrom,
    endedUntil: endedTo,
    schedule,
  });
}

/** @throws ApiError NOT_FOUND */
export async function readTaskDetail(
  client: Queryable,
  table: TaskTable,
  id: string,
  context: Parameters<typeof explainTask>[3],
): Promise<TaskDetail> {
  const reader = batched(client);
  const [[summary], columns, sizes, defaults, chain, reasons] = await Promise.all([
    readSummaries(reader, table, [id], excerptLength),
    readTask(reader, table, id, maxTextLength),
    readTextSizes(reader, table, id),
    readColumnDefaults(reader, table),
    readChain(reader, table, id, { characters: excerptLength, scanLimitMs: chainTimeMs }),
    explainTask(reader, table, id, context),
  ]);
  if (summary === undefined || columns === null || sizes === null || reasons === null) throw noSuchTask(id);
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
    reasons: reasons.map(
      ({ code, text: words, remedy = null, tasks = [], action = null, page = { hint: remedy } }) => ({
        code,
        text: words,
        remedy,
        tasks: [...tasks],
        action,
        hint: page.hint ?? null,
        statement: page.statement ?? null,
        blockers: [...(page.blockers ?? [])],
      }),
    ),
    ...chain,
  };
}

/** @throws ApiError NOT_FOUND */
export async function readTaskDependencies(client: Client, table: TaskTable, id: string): Promise<DependencyGraph> {
  const graph = await readDependencyGraph(client, table, id, { characters: excerptLength, scanLimitMs: chainTimeMs });
  if (graph === null) throw noSuchTask(id);
  return graph;
}

const noSuchTask = (id: string): ApiError => new ApiError("NOT_FOUND", `there is no task ${id} in this table`);
