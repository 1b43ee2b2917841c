import type { TaskSummary } from "../../tasks/types.js";
import { taskStates } from "../../shared/taskState.js";

export const sortableColumns = ["state", "group", "plan", "run"] as const;

type Column = (typeof sortableColumns)[number];

/**
 * Only the order by id is that of the whole list, because the table has no index for the others.
 * @param sort a column, preceded by `-` for descending order
 */
export function sortTasks(tasks: readonly TaskSummary[], sort: string | null, now: number): readonly TaskSummary[] {
  const column = sortableColumns.find((each) => each === sort?.replace(/^-/, ""));
  if (column === undefined) return tasks;
  const sign = sort?.startsWith("-") === true ? -1 : 1;
  const compare = comparisons[column];
  return tasks.toSorted((one, other) => sign * compare(one, other, now));
}

const comparisons: Readonly<Record<Column, (one: TaskSummary, other: TaskSummary, now: number) => number>> = {
  state: (one, other) => taskStates.indexOf(one.state) - taskStates.indexOf(other.state),
  group: (one, other) => (one.group ?? "").localeCompare(other.group ?? ""),
  plan: (one, other) => compareNumbers(timeOf(one.plan), timeOf(other.plan)),
  run: (one, other, now) => compareNumbers(runMs(one, now), runMs(other, now)),
};

/** Unlike a difference, this also compares infinite numbers. */
const compareNumbers = (one: number, other: number): number => (one === other ? 0 : one < other ? -1 : 1);

const timeOf = (plan: string): number => {
  const ms = Date.parse(plan);
  return Number.isNaN(ms) ? (plan.startsWith("-") ? -Infinity : Infinity) : ms;
};

const runMs = ({ state, start, tookMs }: TaskSummary, now: number): number =>
  state === "WORK" && start !== null ? now - Date.parse(start) : (tookMs ?? -1);
