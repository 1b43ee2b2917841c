import { html } from "htm/preact";
import type { VNode } from "preact";
import type { FullTask } from "../api/schemas.js";
import { numberText, timeText } from "./format.js";
import { waitsForRetry } from "./taskTimes.js";
import { readTryErrors } from "../../shared/tryErrors.js";
import { formatDuration } from "../../shared/formatDuration.js";

/** Columns that are not listed, because they are internal or shown elsewhere on the page. */
const hiddenColumns = new Set(["take", "hash", "owner", "ready", "wait", "plain", "args"]);
/** The common values of columns. A column that has one of its common values is not shown. */
const defaultValues: Readonly<Record<string, readonly unknown[]>> = {
  timeout: ["00:00:00"],
  live: ["00:00:00"],
  gap: ["00:00:00"],
  keep: ["00:00:00"],
  catchup: [false],
  overlap: [false],
  count: [0],
  crash: [0],
  drift: [false],
  save: [false],
  header: [true],
  string: [true],
  delimiter: ["\t"],
  escape: [""],
  quote: [""],
  null: ["\\N"],
};
/** How many ids of `after` are listed. */
const maxIds = 8;

/** Shows the settings that have uncommon values, including user-defined columns. */
export function Settings({ table, task }: { table: string; task: FullTask }): VNode {
  return html`<dl class="panel settings">
    ${settings(table, task).map(
      ([name, shown]) =>
        html`<div key=${name}>
          <dt>${name}</dt>
          <dd>${shown}</dd>
        </div>`,
    )}
  </dl>`;
}

type Shown = VNode | VNode[] | string;

function settings(table: string, task: FullTask): [string, Shown][] {
  const { max, repeat, rule, key, retry, pid, remote, columns } = task;
  const isTriedAgain = (retry ?? 0) > 0;
  const isHidden = (name: string, value: unknown): boolean =>
    value === null ||
    hiddenColumns.has(name) ||
    (name === "errors" && readTryErrors(value) !== null) ||
    defaultValues[name]?.includes(value) === true ||
    // Without retries, these have no effect.
    ((name === "backoff" || name === "sqlstate") && !isTriedAgain) ||
    (name === "due" && (task.plan === "infinity" || waitsForRetry(task)));
  const rows: [string, Shown | null][] = [
    ["max", max !== null && max < 0 ? `${max} (pause of ${formatDuration(-max)})` : String(max ?? 0)],
    ["repeat", repeat],
    ["rule", rule],
    ["key", key],
    ["retry", isTriedAgain ? String(retry) : null],
    ...Object.entries(columns).map(([name, value]): [string, Shown | null] => {
      if (isHidden(name, value)) return [name, null];
      return [name, name === "after" ? taskLinks(table, value) : valueView(value)];
    }),
    ["pid", pid === null ? null : String(pid)],
    ["remote", remote],
  ];
  return rows.flatMap(([name, shown]): [string, Shown][] => (shown === null ? [] : [[name, shown]]));
}

const jsonText = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

function valueView(value: unknown): Shown {
  if (typeof value === "boolean") return value ? "yes" : "no";
  const text = jsonText(value);
  const isTime = /^\d{4}-\d\d-\d\dT[\d:.]+[+-]\d\d:\d\d$/.test(text);
  return isTime ? html`<time title=${text}>${timeText(text)}</time>` : text;
}

/** Returns links to the tasks whose ids are in a JSON array. */
function taskLinks(table: string, value: unknown): Shown {
  const ids = jsonText(value).match(/\d+/g) ?? [];
  const links = ids
    .slice(0, maxIds)
    .map((id, index) => html`${index > 0 && ", "}<a key=${id} href=${`/tables/${table}/tasks/${id}`}>${id}</a>`);
  const others = ids.length - maxIds;
  return others > 0 ? [...links, html` and ${numberText(others)} more`] : links;
}

/** Returns the values for the input as JSON, or null if there are none. */
export function argumentsText({ columns: { args } }: FullTask): FullTask["data"] {
  if (args === null || args === undefined) return null;
  const short = jsonText(args);
  const text = typeof args === "string" || short.length <= 100 ? short : JSON.stringify(args, null, 2);
  return { text, bytes: new TextEncoder().encode(text).length };
}
