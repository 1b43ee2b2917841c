import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { readChain } from "../../tasks/queries/taskChain.js";
import { changeTasks } from "../../tasks/commands/changeTasks.js";
import { changeText } from "../../tasks/commands/describeChange.js";
import { explainTask } from "../../tasks/explain/explainTask.js";
import { states, type TaskFilter as Filter } from "../../tasks/taskFilter.js";
import { listTasks } from "../../tasks/queries/listTasks.js";
import { longTexts, readTask, readTextSizes } from "../../tasks/queries/readTask.js";
import { readSummaries } from "../../tasks/queries/taskSummary.js";
import { WebProblem } from "../errors.js";
import type { ChangedTask, Task, TaskFilter, TaskPage, Tasks } from "./schemas.js";

/** Most characters of a text in a list, and of each long text of one task. */
const briefLength = 300;
const mostText = 256 * 1024;
/**
 * How long rows are looked through for one answer, in ms: for those that were asked for; for what came of a
 * task, which is asked again whenever something changes.
 */
const patienceMs = 500;
const chainPatienceMs = 100;

/** A page of tasks that fit; what is not reached quickly is for the next one. */
export async function listAnswer(
  client: Client,
  table: TaskTable,
  { before, limit, ...asked }: TaskFilter,
): Promise<Tasks> {
  const began = performance.now();
  const request = { filter: toFilter(asked), limit, before, characters: briefLength };
  return await listTasks(client, table, request, () => performance.now() - began > patienceMs);
}

function toFilter({ state, group, text, from, to }: Omit<TaskFilter, "before" | "limit">): Filter {
  return {
    ...(state === undefined
      ? {}
      : { states: states.filter((each) => state.split(",").includes(each)) }),
    ...(group === undefined ? {} : { group }),
    ...(text === undefined ? {} : { text }),
    ...(from === undefined ? {} : { since: from }),
    ...(to === undefined ? {} : { until: to }),
  };
}

/** One task with its texts, why it does not run, and its chain. @throws WebProblem NOT_FOUND */
export async function taskAnswer(
  client: Client,
  table: TaskTable,
  id: string,
  around: Omit<Parameters<typeof explainTask>[3], "locks">,
): Promise<TaskPage> {
  const [summary] = await readSummaries(client, table, [id], briefLength);
  const columns = await readTask(client, table, id, mostText);
  const sizes = await readTextSizes(client, table, id);
  if (summary === undefined || columns === null || sizes === null) throw notThere(id);
  const text = (name: (typeof longTexts)[number]): Task["output"] => {
    const value = columns.get(name) ?? null;
    if (value === null) return null;
    const shown = typeof value === "string" ? value : JSON.stringify(value);
    return { text: shown, bytes: sizes[name] ?? 0 };
  };
  const waits = summary.state === "PLAN" && !summary.held;
  const reasons = waits
    ? ((await explainTask(client, table, id, { ...around, locks: false })) ?? [])
    : [];
  const told = new Set([...Object.keys(summary), ...longTexts]);
  return {
    task: {
      ...summary,
      input: text("input") ?? { text: "", bytes: 0 },
      output: text("output"),
      error: text("error"),
      data: text("data"),
      columns: Object.fromEntries([...columns].filter(([name]) => !told.has(name))),
    },
    waits: reasons.map((reason) => reason.text),
    ...(await readChain(client, table, id, {
      characters: briefLength,
      patienceMs: chainPatienceMs,
    })),
  };
}

/** @throws WebProblem NOT_FOUND, and CONFLICT with the reason for which it was not changed */
export async function changeAnswer(
  client: Client,
  table: TaskTable,
  id: string,
  action: "stop" | "retry" | "run-now",
): Promise<ChangedTask> {
  const [changed] = await changeTasks(client, table, action, [id]);
  if (changed === undefined || changed.outcome === "missing") throw notThere(id);
  const text = changeText(action, changed);
  if (changed.outcome !== "changed") throw new WebProblem("CONFLICT", `task ${id}: ${text}`);
  return { id, state: action === "stop" ? "STOP" : "PLAN" };
}

const notThere = (id: string): WebProblem =>
  new WebProblem("NOT_FOUND", `there is no task ${id} in this table`);
