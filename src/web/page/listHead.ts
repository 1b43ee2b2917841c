import type { TaskSummary } from "../../tasks/types.js";
import { html } from "htm/preact";
import type { VNode } from "preact";
import { mayChange } from "./apiClient.js";
import { columns, shownColumns } from "./columns.js";
import { changedQuery, setQuery } from "./router.js";
import type { Selection } from "./selection.js";
import { taskStates } from "../../shared/taskState.js";

export const sortableColumns = columns.flatMap((column) => ("sort" in column ? [column.name] : []));

type SortColumn = (typeof sortableColumns)[number];

export function ListHead(props: {
  query: URLSearchParams;
  tasks: readonly TaskSummary[];
  selection: Selection;
}): VNode {
  const { query, tasks, selection } = props;
  const isOldestFirst = query.get("order") === "oldest";
  const sorted = query.get("sort") ?? "";
  const idOrder = sorted === "" ? (isOldestFirst ? "ascending" : "descending") : undefined;
  return html`<thead>
    <tr>
      <th scope="col" aria-sort=${idOrder}>
        <${SelectAll} tasks=${tasks} selection=${selection} />
        <button
          type="button"
          class="sort"
          title=${isOldestFirst ? "Newest first" : "Oldest first"}
          onClick=${() => reorder(query, { sort: "", order: sorted !== "" || isOldestFirst ? "" : "oldest" })}
        >
          Id${mark(idOrder)}
        </button>
      </th>
      ${shownColumns.value.map((column) => {
        const { name: sort, title } = column;
        if (!("sort" in column)) return html`<th scope="col" key=${sort} data-column=${sort}>${title}</th>`;
        const order = sorted === sort ? "ascending" : sorted === `-${sort}` ? "descending" : undefined;
        const next = order === undefined ? sort : order === "ascending" ? `-${sort}` : "";
        return html`<th scope="col" key=${sort} data-column=${sort} aria-sort=${order}>
          <button
            type="button"
            class="sort"
            title="Sort the tasks on this page"
            onClick=${() => reorder(query, { sort: next, order: query.get("order") ?? "" })}
          >
            ${title}${mark(order)}
          </button>
        </th>`;
      })}
      <th scope="col" class="do"><span class="hidden">Actions</span></th>
    </tr>
  </thead>`;
}

const mark = (order: "ascending" | "descending" | undefined): string =>
  order === undefined ? "" : order === "ascending" ? " ↑" : " ↓";

function reorder(query: URLSearchParams, { sort, order }: { readonly sort: string; readonly order: string }): void {
  const start = order === (query.get("order") ?? "") ? {} : { before: "", after: "" };
  setQuery(changedQuery(query, { ...start, sort, order }));
}

function SelectAll({ tasks, selection }: { tasks: readonly TaskSummary[]; selection: Selection }): VNode | null {
  if (!mayChange.value) return null;
  const count = tasks.filter(({ id }) => selection.has(id)).length;
  const isAll = count === tasks.length;
  return html`<input
    type="checkbox"
    aria-label="Select all tasks on this page"
    checked=${isAll}
    indeterminate=${count > 0 && !isAll}
    onChange=${() => selection.set(tasks, !isAll)}
  />`;
}

export function SelectBox({ task, selection }: { task: TaskSummary; selection: Selection }): VNode | null {
  if (!mayChange.value) return null;
  const isSelected = selection.has(task.id);
  return html`<input
    type="checkbox"
    aria-label=${`Select task ${task.id}`}
    checked=${isSelected}
    onChange=${() => selection.set([task], !isSelected)}
  />`;
}

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

const comparisons: Readonly<Record<SortColumn, (one: TaskSummary, other: TaskSummary, now: number) => number>> = {
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
