import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ChangeResults } from "../api/changeSchemas.js";
import type { TaskList } from "../../tasks/queries/listTasks.js";
import { actionsFor, type ActedTask } from "./actions.js";
import { getJson, postJson, problemText } from "./apiClient.js";
import { askToConfirm } from "./dialog.js";
import { numberText } from "./format.js";

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

const changes = [
  { name: "retry", label: "Retry", done: "planned again", verb: "will run again" },
  { name: "run-now", label: "Run now", done: "planned for now", verb: "will be due now" },
  { name: "stop", label: "Stop", done: "stopped", verb: "will be stopped. Runs are cancelled" },
  { name: "delete", label: "Delete", done: "deleted", verb: "will be deleted. This cannot be undone" },
] as const;

type ManyChange = (typeof changes)[number];

const countOf = (count: number): string => (count === 1 ? "1 task" : `${numberText(count)} tasks`);

export function SelectionBar(props: {
  table: string;
  filter: URLSearchParams;
  selection: Selection;
  shown: readonly ActedTask[];
  hasMore: boolean;
  done: () => void;
}): VNode {
  const { table, filter, selection, shown, hasMore, done } = props;
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const busy = useRef(false);
  const search = useMatching(table, filter, selection);
  const onScreen = shown.filter(({ id }) => selection.has(id)).length;
  const elsewhere = selection.size - onScreen;
  const change = async (kind: ManyChange, tasks: readonly ActedTask[]): Promise<void> => {
    if (busy.current || !(await isConfirmed(kind, tasks.length, elsewhere > 0))) return;
    busy.current = true;
    const ids = tasks.map(({ id }) => id);
    try {
      // Another user may have retried a task in the meantime, and its new run may have ended.
      const seen = kind.name === "retry" ? { states: [...new Set(tasks.map(({ state }) => state))] } : {};
      const results = await postJson<ChangeResults>(`/tables/${table}/changes`, { change: kind.name, ids, ...seen });
      setOutcome({ kind, results, problem: null });
      const changed = new Set(results.tasks.filter((each) => each.outcome === "changed").map(({ id }) => id));
      selection.set(
        tasks.filter(({ id }) => changed.has(id)),
        false,
      );
    } catch (error) {
      setOutcome({ kind, results: null, problem: problemText(error) });
    }
    busy.current = false;
    done();
  };
  return html`${outcome !== null && html`<${OutcomeNotice} outcome=${outcome} close=${() => setOutcome(null)} />`}
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
      ${matchingView(search, selection, { hasMore, all: onScreen === shown.length })}
    </section>`
  }`;
}

async function isConfirmed(kind: ManyChange, count: number, unseen: boolean): Promise<boolean> {
  if (!unseen && kind.name !== "stop" && kind.name !== "delete") return true;
  const text = `${countOf(count)} ${kind.verb}.${unseen ? " Not all of them are on this page." : ""}`;
  return await askToConfirm({
    title: `${kind.label} ${countOf(count)}?`,
    text,
    confirm: `${kind.label} ${numberText(count)}`,
  });
}

interface Outcome {
  readonly kind: ManyChange;
  readonly results: ChangeResults | null;
  readonly problem: string | null;
}

/** Gets the focus, because the button that was pressed may be gone. */
function OutcomeNotice({ outcome, close }: { outcome: Outcome; close: () => void }): VNode {
  const { kind, results, problem } = outcome;
  const notice = useRef<HTMLDivElement>(null);
  useEffect(() => notice.current?.focus(), [outcome]);
  const others = new Map<string, string[]>();
  for (const { id, outcome: result, text } of results?.tasks ?? []) {
    if (result !== "changed") others.set(text, [...(others.get(text) ?? []), id]);
  }
  const total = results?.tasks.length ?? 0;
  const isComplete = results !== null && others.size === 0;
  return html`<div
    class=${isComplete ? "notice outcome" : "notice bad outcome"}
    ref=${notice}
    tabindex="-1"
    role="group"
    aria-label="What came of it"
  >
    <div>
      ${problem ?? `${numberText(results?.changed ?? 0)} of ${countOf(total)} ${kind.done}.`}
      ${
        others.size > 0 &&
        html`<ul>
          ${[...others].map(([text, ids]) => html`<li key=${text}>Not ${idsText(ids)}: ${text}</li>`)}
        </ul>`
      }
    </div>
    <button type="button" class="quiet" onClick=${close}>Close</button>
  </div>`;
}

function idsText(ids: readonly string[]): string {
  const listed = ids.slice(0, 8).join(", ");
  return ids.length > 8 ? `${listed} and ${numberText(ids.length - 8)} more` : listed;
}

interface Matching {
  /** Null if no search is running. */
  readonly found: number | null;
  readonly result: { readonly count: number; readonly isComplete: boolean } | null;
  readonly problem: string | null;
  readonly start: () => void;
  readonly stop: () => void;
}

/** Reads one page of the list after the other. */
function useMatching(table: string, filter: URLSearchParams, selection: Selection): Matching {
  const [state, setState] = useState<Pick<Matching, "found" | "result" | "problem">>({
    found: null,
    result: null,
    problem: null,
  });
  const show = (next: Partial<Matching>): void => setState({ found: null, result: null, problem: null, ...next });
  const ending = useRef<AbortController | null>(null);
  const key = filter.toString();
  useEffect(() => {
    show({});
    return () => ending.current?.abort();
  }, [key]);
  const start = async (): Promise<void> => {
    const controller = new AbortController();
    ending.current = controller;
    const query = new URLSearchParams(filter);
    query.set("limit", "200");
    const found: ActedTask[] = [];
    try {
      for (let isComplete = false; !isComplete && found.length < maxSelected;) {
        show({ found: found.length });
        const list: TaskList = await getJson(`/tables/${table}/tasks?${query.toString()}`, controller.signal);
        found.push(...list.tasks);
        query.set(query.get("order") === "oldest" ? "after" : "before", list.next ?? "");
        isComplete = list.next === null;
        if (isComplete && found.length <= maxSelected) show({ result: { count: found.length, isComplete } });
        else if (found.length >= maxSelected) show({ result: { count: maxSelected, isComplete: false } });
      }
      selection.set(found, true);
    } catch (error) {
      if (!controller.signal.aborted) show({ problem: problemText(error) });
    }
  };
  const stop = (): void => {
    ending.current?.abort();
    show({});
  };
  return { ...state, start: () => void start(), stop };
}

function matchingView(
  { found, result, problem, start, stop }: Matching,
  selection: Selection,
  { hasMore, all }: { readonly hasMore: boolean; readonly all: boolean },
): VNode | null {
  if (problem !== null) return html`<span class="problem" role="alert">${problem}</span>`;
  if (found !== null) {
    return html`<span class="many">
      <span role="status">${numberText(found)} found …</span>
      <button type="button" onClick=${stop}>Stop search</button>
    </span>`;
  }
  if (result !== null && selection.size > 0) {
    const text = result.isComplete
      ? `All ${countOf(result.count)} that match were selected.`
      : `More than ${numberText(result.count)} match: the first ${numberText(result.count)} were selected.`;
    return html`<small role="status">${text}</small>`;
  }
  if (!hasMore || !all) return null;
  return html`<button type="button" class="quiet" onClick=${start}>
    Select all that match (up to ${maxSelected})
  </button>`;
}
