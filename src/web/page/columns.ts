import { computed, signal } from "@preact/signals";
import { html } from "htm/preact";
import type { VNode } from "preact";

interface Column {
  readonly name: string;
  readonly title: string;
  /** Whether the tasks on the screen can be sorted by it. */
  readonly sort?: boolean;
  /** Shown until the user chooses columns. */
  readonly usual?: boolean;
}

/** Those of the list of tasks, besides the id and the actions. */
export const columns = [
  { name: "state", title: "State", sort: true, usual: true },
  { name: "group", title: "Group", sort: true, usual: true },
  { name: "key", title: "Key" },
  { name: "role", title: "Role" },
  { name: "input", title: "Input", usual: true },
  { name: "result", title: "Result", usual: true },
  { name: "plan", title: "Plan", sort: true, usual: true },
  { name: "start", title: "Start" },
  { name: "stop", title: "Stop" },
  { name: "run", title: "Run", usual: true },
  { name: "attempt", title: "Failed tries" },
  { name: "parent", title: "Parent" },
  { name: "pid", title: "Backend" },
] as const satisfies readonly Column[];

export type ColumnName = (typeof columns)[number]["name"];

const storageKey = "pg-task columns";

/** Names that a later version no longer knows are left out. */
const chosen = signal<readonly string[] | null>(localStorage.getItem(storageKey)?.split(",") ?? null);

const isUsual = (column: Column): boolean => column.usual === true;

export const shownColumns = computed(() =>
  columns.filter((column) => chosen.value?.includes(column.name) ?? isUsual(column)),
);

function choose(names: readonly string[]): void {
  const usual = columns.filter(isUsual).map(({ name }) => name);
  const same = names.join() === usual.join();
  if (same) localStorage.removeItem(storageKey);
  else localStorage.setItem(storageKey, names.join());
  chosen.value = same ? null : names;
}

/** Escape closes it. */
function closeMenu(event: KeyboardEvent): void {
  const { currentTarget, key } = event;
  if (key !== "Escape" || !(currentTarget instanceof HTMLDetailsElement)) return;
  currentTarget.open = false;
  currentTarget.querySelector("summary")?.focus();
}

export function ColumnChoice(): VNode {
  const shown: readonly string[] = shownColumns.value.map(({ name }) => name);
  const toggle = (name: string): void =>
    choose(columns.map((column) => column.name).filter((each) => (each === name) !== shown.includes(each)));
  return html`<details class="menu" onKeyDown=${closeMenu}>
    <summary>Columns</summary>
    <fieldset class="panel">
      <legend class="hidden">Columns</legend>
      ${columns.map(
        ({ name, title }) =>
          html`<label key=${name}>
            <input type="checkbox" checked=${shown.includes(name)} onChange=${() => toggle(name)} />${title}
          </label>`,
      )}
    </fieldset>
  </details>`;
}
