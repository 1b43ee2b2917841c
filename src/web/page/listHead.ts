import type { TaskSummary } from "../../tasks/types.js";
import type { TaskList } from "../../tasks/queries/listTasks.js";
import { numberText } from "./format.js";
import { html } from "htm/preact";
import type { VNode } from "preact";
import { mayChange } from "./apiClient.js";
import { columns, shownColumns } from "./columns.js";
import { orderBy, SortHead } from "./parts.js";
import { changedQuery, setQuery } from "./router.js";
import type { Selection } from "./selection.js";
import { taskStates } from "../../shared/taskState.js";

const sortableColumns = columns.flatMap((column) => ("sort" in column ? [column.name] : []));

type SortColumn = (typeof sortableColumns)[number];

export function ListHead(props: {
  query: URLSearchParams;
  tasks: readonly TaskSummary[];
  selection: Selection;
}): VNode {
  const { query, tasks, selection } = props;
  const isOldestFirst = query.get("order") === "oldest";
  const isSlowestFirst = query.get("order") === "slowest";
  const sorted = query.get("sort") ?? "";
  const idOrder = sorted === "" && !isSlowestFirst ? (isOldestFirst ? "ascending" : "descending") : undefined;
  return html`<thead>
    <tr>
      <${SortHead}
        title="Id"
        order=${idOrder}
        hint=${isOldestFirst ? "Newest first" : "Oldest first"}
        press=${() => reorder(query, idOrder === "descending" ? "oldest" : "newest")}
      >
        <${SelectAll} tasks=${tasks} selection=${selection} />
      <//>
      ${shownColumns.value.map((column) => {
        const { name, title } = column;
        const head = { key: name, column: name, title };
        if (name === "run") {
          const order = isSlowestFirst ? "descending" : undefined;
          const press = (): void => reorder(query, isSlowestFirst ? "newest" : "slowest");
          return html`<${SortHead} ...${head} order=${order} hint="Slowest first" press=${press} />`;
        }
        if (!("sort" in column)) return html`<th scope="col" key=${name} data-column=${name}>${title}</th>`;
        const order = orderBy(name, sorted);
        const press = (): void => reorder(query, order === undefined ? name : order === "ascending" ? `-${name}` : "");
        return html`<${SortHead} ...${head} order=${order} hint="Sort the tasks on this page" press=${press} />`;
      })}
      <th scope="col" class="do"><span class="hidden">Actions</span></th>
    </tr>
  </thead>`;
}

/** Orders of the whole list. */
const orders = ["newest", "oldest", "slowest"] as const;

/** An order of the list, or what the tasks on the page are sorted by. */
const orderOf = (query: URLSearchParams): string => query.get("sort") ?? query.get("order") ?? "newest";

/** @param to as `orderOf` returns it; "" removes the sorting of the page */
function reorder(query: URLSearchParams, to: string): void {
  const order = orders.find((each) => each === to);
  const changes: Record<string, string> =
    order === undefined ? { sort: to } : { sort: "", before: "", after: "", order: order === "newest" ? "" : order };
  setQuery(changedQuery(query, changes));
}

/** On a narrow screen there are no headers to press. */
export const OrderChoice = ({ query }: { query: URLSearchParams }): VNode =>
  html`<label class="narrow-only fold">
    Order
    <select
      value=${orderOf(query)}
      onChange=${({ target }: Event) => target instanceof HTMLSelectElement && reorder(query, target.value)}
    >
      ${orders.map((name) => html`<option key=${name} value=${name}>${name} first</option>`)}
      ${sortableColumns.flatMap((name) => [
        html`<option key=${name} value=${name}>this page by ${name}</option>`,
        html`<option key=${`-${name}`} value=${`-${name}`}>this page by ${name}, descending</option>`,
      ])}
    </select>
  </label>`;

/** Says what is sorted if it is not the whole list. */
export function orderText(query: URLSearchParams, { tasks, next, scanned }: TaskList): string | null {
  const sort = query.get("sort");
  if (sort !== null)
    return `Only the ${numberText(tasks.length)} tasks on this page are sorted by ${sort.replace("-", "")}.`;
  if (query.get("order") !== "slowest") return null;
  const most = tasks.length === slowestLimit ? `The ${slowestLimit} slowest` : "The slowest first";
  if (next === null && !query.has("before")) return `${most} of all tasks that match.`;
  return `${most} of ${numberText(scanned)} rows searched${next === null ? "" : ", not yet of the older ones"}.`;
}

export const slowestLimit = 200;

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
 * Sorts the tasks of a page, because the table has no index for these orders.
 * @param sort a column, preceded by `-` for descending order
 */
export function sortTasks(tasks: readonly TaskSummary[], sort: string | null): readonly TaskSummary[] {
  const column = sortableColumns.find((each) => each === sort?.replace(/^-/, ""));
  if (column === undefined) return tasks;
  const sign = sort?.startsWith("-") === true ? -1 : 1;
  const compare = comparisons[column];
  return tasks.toSorted((one, other) => sign * compare(one, other));
}

const comparisons: Readonly<Record<SortColumn, (one: TaskSummary, other: TaskSummary) => number>> = {
  state: (one, other) => taskStates.indexOf(one.state) - taskStates.indexOf(other.state),
  group: (one, other) => (one.group ?? "").localeCompare(other.group ?? ""),
  plan: (one, other) => compareNumbers(timeOf(one.plan), timeOf(other.plan)),
};

/** Unlike a difference, this also compares infinite numbers. */
const compareNumbers = (one: number, other: number): number => (one === other ? 0 : one < other ? -1 : 1);

const timeOf = (plan: string): number => {
  const ms = Date.parse(plan);
  return Number.isNaN(ms) ? (plan.startsWith("-") ? -Infinity : Infinity) : ms;
};
