import { html } from "htm/preact";
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { printableLine } from "../../shared/printable.js";
import { problemText } from "./apiClient.js";
import type { TaskSummary } from "../../tasks/types.js";
import type { TableInfo } from "../api/schemas.js";
import { fullTimeText } from "./format.js";
import type { Resource } from "./resource.js";

export const unknown = "–";

/** @param props.text shown instead; the time then appears when the pointer rests on it */
export function Time({ at, text }: { at: string; text?: string }): VNode {
  const full = fullTimeText(at);
  return html`<time title=${text === undefined ? at : full}>${text ?? full}</time>`;
}

/** @param props.filter other conditions of the list to which it leads */
export function GroupLink(props: { table: string; group: string | null; filter?: URLSearchParams }): VNode | null {
  const { table, group, filter } = props;
  if (group === null) return null;
  const query = new URLSearchParams(filter);
  query.set("group", group);
  const name = group === "" ? "(empty)" : printableLine(group);
  return html`<a class="group" title=${name} href=${`/tables/${table}/tasks?${query.toString()}`}>${name}</a>`;
}

const stateMeanings: Readonly<Record<string, string>> = {
  PLAN: "planned",
  TAKE: "claimed",
  WORK: "running",
  DONE: "finished without error",
  FAIL: "finished with an error",
  GONE: "expired without running",
  STOP: "stopped",
};

export function StateBadge({ task: { state, ready } }: { task: Pick<TaskSummary, "state" | "ready"> }): VNode {
  const isDue = state === "PLAN" && ready === true;
  const meaning = isDue ? "due, waiting to start" : (stateMeanings[state] ?? state);
  return html`<span class=${`state s-${state}`} title=${meaning}>${state}</span>`;
}

export function Alert({ text, top = false }: { text: string; top?: boolean }): VNode {
  return html`<p class=${top ? "notice bad top" : "notice bad"} role="alert">${text}</p>`;
}

export function StaleNotice(props: { of: Resource<unknown>; top?: boolean }): VNode | null {
  const { problem, retries, value, at } = props.of;
  if (problem === null) return null;
  const parts = [
    problem,
    ...(value === null ? [] : [`Showing data from ${fullTimeText(new Date(at).toISOString())}`]),
    ...(retries ? ["This page keeps trying"] : []),
  ];
  return html`<${Alert} text=${parts.length === 1 ? problem : `${parts.join(". ")}.`} top=${props.top} />`;
}

/** Lets the buttons of one place act one at a time, and returns what says why the last action has failed. */
export function useActions(failed: () => void) {
  const [problem, setProblem] = useState<string | null>(null);
  const busy = useRef(false);
  /** @param act resolves to false if the user does not want the action after all */
  const run = async (act: () => Promise<boolean>): Promise<void> => {
    if (busy.current) return;
    busy.current = true;
    try {
      if (await act()) setProblem(null);
    } catch (error) {
      setProblem(problemText(error));
      failed();
    }
    busy.current = false;
  };
  return { run, failure: problem !== null && html`<span class="problem" role="alert">${problem}</span>` };
}

type TableName = Pick<TableInfo, "id" | "server" | "database" | "schema" | "table">;

/** The head of a row that is about a table. */
export const tableHead = ({ id, schema, table, database, server }: TableName): VNode =>
  html`<th scope="row">
    <a href=${`/tables/${id}`}>${printableLine(`${schema}.${table}`)}</a>
    <small>${printableLine(`${database} · ${server}`)}</small>
  </th>`;

interface Sorting {
  /** A title, preceded by `-` for descending order; "" for the given order. */
  readonly sort: string;
  /** The titles of texts. Numbers are sorted in descending order first. */
  readonly texts: readonly string[];
  readonly choose: (sort: string) => void;
}

/** On a narrow screen, the rows of a table with the class `cards` are cards, and `data-title` is shown above each value. */
export function DataTable(props: {
  class?: string;
  caption?: string;
  titles: readonly string[];
  /** Title of an additional last column, shown only to screen readers. */
  hidden?: string;
  /** Whether nothing in the table can have the focus, so that only the table itself can be scrolled with the keyboard. */
  focusable?: boolean;
  sort?: Sorting;
  children: ComponentChildren;
}): VNode {
  const { class: name, caption, titles, hidden, focusable = false, sort, children } = props;
  const region = focusable ? { tabindex: 0, role: "region", "aria-label": caption } : {};
  return html`${sort !== undefined && html`<${SortChoice} titles=${titles} ...${sort} />`}
    <div class="panel scroll" ...${region}>
      <table class=${name}>
        ${
          caption !== undefined &&
          html`<caption class="hidden">
            ${caption}
          </caption>`
        }
        <thead>
          <tr>
            ${titles.map((title) => (sort === undefined ? html`<th scope="col" key=${title}>${title}</th>` : sortHead(title, sort)))}
            ${hidden !== undefined && html`<th scope="col"><span class="hidden">${hidden}</span></th>`}
          </tr>
        </thead>
        <tbody>
          ${children}
        </tbody>
      </table>
    </div>`;
}

type Order = "ascending" | "descending" | undefined;

/** @param sort a name, preceded by `-` for descending order */
export const orderBy = (name: string, sort: string): Order =>
  sort === name ? "ascending" : sort === `-${name}` ? "descending" : undefined;

/** The head of a column, which sorts the rows. */
export function SortHead(props: {
  title: string;
  order: Order;
  press: () => void;
  hint?: string;
  column?: string;
  /** What comes before the title. */
  children?: ComponentChildren;
}): VNode {
  const { title, order, press, hint, column, children } = props;
  return html`<th scope="col" data-column=${column} aria-sort=${order}>
    ${children}
    <button type="button" class="sort" title=${hint} onClick=${press}>
      ${title}${order === undefined ? "" : order === "ascending" ? " ↑" : " ↓"}
    </button>
  </th>`;
}

function sortHead(title: string, { sort, texts, choose }: Sorting): VNode {
  const orders = texts.includes(title) ? [title, `-${title}`] : [`-${title}`, title];
  const next = orders[orders.indexOf(sort) + 1] ?? "";
  return html`<${SortHead} key=${title} title=${title} order=${orderBy(title, sort)} press=${() => choose(next)} />`;
}

/** Cards have no headers to press. */
function SortChoice({ titles, sort, choose }: Sorting & { titles: readonly string[] }): VNode {
  const chosen = ({ target }: Event): void => {
    if (target instanceof HTMLSelectElement) choose(target.value);
  };
  return html`<label class="narrow-only"
    >Sort
    <select value=${sort} onChange=${chosen}>
      <option value="">as configured</option>
      ${titles.flatMap((title) => [
        html`<option key=${title} value=${title}>by ${title}</option>`,
        html`<option key=${`-${title}`} value=${`-${title}`}>by ${title}, descending</option>`,
      ])}
    </select>
  </label>`;
}

export function Facts(props: { class: string; rows: readonly (readonly [string, ComponentChildren])[] }): VNode {
  return html`<dl class=${props.class}>
    ${props.rows.map(
      ([title, value]) =>
        html`<div key=${title}>
          <dt>${title}</dt>
          <dd>${value}</dd>
        </div>`,
    )}
  </dl>`;
}

/** In ms. */
export const typingMs = 250;

/** Calls `find` when the user pauses typing. */
export function SearchBox(props: {
  placeholder: string;
  /** Default: the placeholder. */
  label?: string;
  text: string;
  wide?: boolean;
  /** Whether a narrow screen shows it only with all filters. */
  fold?: boolean;
  find: (text: string) => void;
}): VNode {
  const { placeholder, label = placeholder, text, wide = false, fold = false } = props;
  const [typed, setTyped] = useState(text);
  const find = useRef(props.find);
  find.current = props.find;
  useEffect(() => setTyped(text), [text]);
  useEffect(() => {
    if (typed === text) return undefined;
    const timer = setTimeout(() => find.current(typed), typingMs);
    return () => clearTimeout(timer);
  }, [typed]);
  const input = (event: Event): void => {
    if (event.target instanceof HTMLInputElement) setTyped(event.target.value);
  };
  return html`<input
    type="search"
    class=${wide ? "wide" : fold ? "fold" : ""}
    placeholder=${placeholder}
    aria-label=${label}
    value=${typed}
    onInput=${input}
  />`;
}
