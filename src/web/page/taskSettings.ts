import { html } from "htm/preact";
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import type { FullTask, TaskDetail } from "../api/taskSchemas.js";
import { numberText } from "./format.js";
import { waitsForRetry } from "./taskTimes.js";
import { readTryErrors } from "../../shared/tryErrors.js";
import { formatDuration } from "../../shared/formatDuration.js";
import { printableLine, printableText } from "../../shared/printable.js";
import { Facts, Time } from "./parts.js";

/** Written by pg-task itself, or shown elsewhere on the page. Listed only with all others. */
const notSettings = new Set(["take", "hash", "owner", "ready", "wait", "plain", "args", "attempt"]);
const maxIds = 8;

/** Shows what differs from the defaults, and all on demand. */
export function Settings({ table, page }: { table: string; page: Pick<TaskDetail, "task" | "defaults"> }): VNode {
  const [showsAll, setShowsAll] = useState(false);
  const all = settings(page.task);
  const shown = showsAll ? all : all.filter(([name, value]) => isNotable(page, name, value));
  return html`<div class="panel">
    <div id="settings">
      ${
        shown.length === 0
          ? html`<div class="settings"><p class="note">All settings have their default values.</p></div>`
          : html`<${Facts}
              class="settings"
              rows=${shown.map(([name, value]) => [printableLine(name), settingView(table, name, value)])}
            />`
      }
    </div>
    <button class="quiet" aria-expanded=${showsAll} aria-controls="settings" onClick=${() => setShowsAll(!showsAll)}>
      ${showsAll ? "Show only settings that differ from the defaults" : `Show all ${all.length} settings`}
    </button>
  </div>`;
}

function settings({ columns, pid, remote, parent, ...task }: FullTask): [string, unknown][] {
  const { max, repeat, rule, key, role, retry, attempt } = task;
  return Object.entries({ max, repeat, rule, key, role, retry, attempt, ...columns, pid, remote, parent });
}

function isNotable({ task, defaults }: Pick<TaskDetail, "task" | "defaults">, name: string, value: unknown): boolean {
  // The chain shows the parent.
  if (value === null || notSettings.has(name) || name === "parent") return false;
  if (name === "errors" && readTryErrors(value) !== null) return false;
  if (name === "due" && (task.plan === "infinity" || waitsForRetry(task))) return false;
  const usual = defaults[name];
  return usual === undefined || jsonText(value) !== jsonText(usual);
}

const jsonText = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

type Shown = VNode | VNode[] | string;

function settingView(table: string, name: string, value: unknown): Shown {
  if (value === null) return html`<i>null</i>`;
  if (value === "") return html`<i>empty</i>`;
  if (name === "max" && typeof value === "number" && value < 0) return `${value} (pause of ${formatDuration(-value)})`;
  if (name === "after") return taskLinks(table, value);
  if (name === "role" && typeof value === "string") {
    return html`<a href=${`/tables/${table}/tasks?role=${encodeURIComponent(value)}`}>${printableLine(value)}</a>`;
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  const text = jsonText(value);
  const isTime = /^\d{4}-\d\d-\d\dT[\d:.]+[+-]\d\d:\d\d$/.test(text);
  if (isTime) return html`<${Time} at=${text} />`;
  // A tab or line feed as a delimiter would be invisible.
  return text.length === 1 ? printableLine(text) : printableText(text);
}

function taskLinks(table: string, value: unknown): Shown {
  const ids = jsonText(value).match(/\d+/g) ?? [];
  const links = ids
    .slice(0, maxIds)
    .map((id, index) => html`${index > 0 && ", "}<a key=${id} href=${`/tables/${table}/tasks/${id}`}>${id}</a>`);
  const others = ids.length - maxIds;
  return others > 0 ? [...links, html` and ${numberText(others)} more`] : links;
}

export function argumentsText({ columns: { args } }: FullTask): FullTask["data"] {
  if (args === null || args === undefined) return null;
  const short = jsonText(args);
  const text = typeof args === "string" || short.length <= 100 ? short : JSON.stringify(args, null, 2);
  return { text, bytes: new TextEncoder().encode(text).length };
}
