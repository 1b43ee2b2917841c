import { html } from "htm/preact";
import type { VNode } from "preact";
import { useRef, useState } from "preact/hooks";
import type { ChangeResults } from "../api/changeSchemas.js";
import { actionsFor, type ActedTask } from "./actions.js";
import { postJson, problemText } from "./apiClient.js";
import { confirmChange, readEffects } from "./effects.js";
import { numberText } from "./format.js";
import { changes, countOf, OutcomeNotice, type ManyChange } from "./manyChanges.js";

/** What one request changes at most. */
const maxSelected = 500;

export interface Selection {
  readonly has: (id: string) => boolean;
  readonly size: number;
  /** As they were seen last. */
  readonly tasks: readonly ActedTask[];
  readonly set: (tasks: readonly ActedTask[], selected: boolean) => void;
  readonly clear: () => void;
}

/**
 * @param of the list to which the selection belongs; another list begins without one
 * @param shown the tasks on the screen, whose states are newer than those of the selected tasks
 */
export function useSelection(of: string, shown: readonly ActedTask[]): Selection {
  const [selected, setSelected] = useState<{ of: string; tasks: ReadonlyMap<string, ActedTask> }>({
    of,
    tasks: new Map(),
  });
  const chosen = selected.of === of ? selected.tasks : new Map<string, ActedTask>();
  const newer = new Map(shown.map((task) => [task.id, task]));
  const tasks = [...chosen.values()].map((task) => newer.get(task.id) ?? task);
  const set = (changed: readonly ActedTask[], isSelected: boolean): void =>
    setSelected((before) => {
      const next = new Map(before.of === of ? before.tasks : []);
      for (const task of changed) {
        if (!isSelected) next.delete(task.id);
        else if (next.size < maxSelected) next.set(task.id, task);
      }
      return { of, tasks: next };
    });
  const clear = (): void => setSelected({ of, tasks: new Map() });
  return { has: (id) => chosen.has(id), size: chosen.size, tasks, set, clear };
}

export function SelectionBar(props: {
  table: string;
  selection: Selection;
  shown: readonly ActedTask[];
  done: () => void;
}): VNode {
  const { table, selection, shown, done } = props;
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const busy = useRef(false);
  const onScreen = shown.filter(({ id }) => selection.has(id)).length;
  const elsewhere = selection.size - onScreen;
  const change = async (kind: ManyChange, tasks: readonly ActedTask[]): Promise<void> => {
    if (busy.current) return;
    busy.current = true;
    const ids = tasks.map(({ id }) => id);
    try {
      const wanted = await confirmed(table, kind, tasks, elsewhere > 0);
      busy.current = wanted !== null;
      if (wanted === null) return;
      // Another user may have retried a task in the meantime, and its new run may have ended.
      const seen = kind.name === "retry" ? { states: [...new Set(tasks.map(({ state }) => state))] } : {};
      const results = await postJson<ChangeResults>(`/tables/${table}/changes`, { change: kind.name, ids, ...seen });
      setOutcome({ kind, results, note: wanted.note, problem: null });
      const changed = new Set(results.tasks.filter((each) => each.outcome === "changed").map(({ id }) => id));
      selection.set(
        tasks.filter(({ id }) => changed.has(id)),
        false,
      );
    } catch (error) {
      setOutcome({ kind, results: null, note: "", problem: problemText(error) });
    }
    busy.current = false;
    done();
  };
  return html`${outcome !== null && outcomeView(outcome, () => setOutcome(null))}
  ${
    selection.size > 0 &&
    html`<section class="panel selection" aria-label="Selected tasks">
      <b>${countOf(selection.size)} selected</b>
      ${elsewhere > 0 && html`<small>${numberText(elsewhere)} of them not on this page</small>`}
      <span class="many">
        ${changes.map((kind) => {
          const tasks = selection.tasks.filter((task) => actionsFor(task).some(({ name }) => name === kind.name));
          return (
            tasks.length > 0 &&
            html`<button type="button" key=${kind.name} onClick=${() => void change(kind, tasks)}>
              ${kind.label} ${numberText(tasks.length)}
            </button>`
          );
        })}
        <button type="button" class="quiet" onClick=${selection.clear}>Clear</button>
      </span>
    </section>`
  }`;
}

async function confirmed(table: string, kind: ManyChange, tasks: readonly ActedTask[], unseen: boolean) {
  const count = tasks.length;
  const again = kind.name === "retry" ? tasks.filter(({ state }) => state === "DONE").length : 0;
  const ids = tasks.map(({ id }) => id);
  return await confirmChange(table, await readEffects(table, kind.name, ids), {
    change: kind.name,
    count,
    title: `${kind.label} ${countOf(count)}?`,
    texts: [
      `${countOf(count)} ${kind.verb}.`,
      ...(again > 0
        ? [`${countOf(again)} of them ${again === 1 ? "is" : "are"} DONE, and would run a second time.`]
        : []),
      ...(unseen ? ["Not all of them are on this page."] : []),
    ],
    confirm: `${kind.label} ${numberText(count)}`,
    always: unseen || again > 0 || kind.name === "stop" || kind.name === "delete",
  });
}

interface Outcome {
  readonly kind: ManyChange;
  readonly results: ChangeResults | null;
  readonly note: string;
  readonly problem: string | null;
}

function outcomeView({ kind, results, note, problem }: Outcome, close: () => void): VNode {
  const others = new Map<string, string[]>();
  for (const { id, outcome: result, text } of results?.tasks ?? []) {
    if (result !== "changed") others.set(text, [...(others.get(text) ?? []), id]);
  }
  const total = results?.tasks.length ?? 0;
  return html`<${OutcomeNotice}
    text=${problem ?? `${numberText(results?.changed ?? 0)} of ${countOf(total)} ${kind.done}.${note}`}
    others=${[...others].map(([text, ids]) => ({ text, tasks: ids.length, ids }))}
    isComplete=${results !== null && others.size === 0 && note === ""}
    close=${close}
  />`;
}
