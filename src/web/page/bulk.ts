import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { BulkState } from "../api/bulkRoutes.js";
import { getJson, postJson, problemText } from "./apiClient.js";
import { changeableStates, finalStates } from "../../shared/taskState.js";
import { confirmChange } from "./effects.js";
import { numberText } from "./format.js";
import { useResource } from "./resource.js";
import type { Count } from "../../shared/count.js";
import { changes, countOf, OutcomeNotice, type ManyChange } from "./manyChanges.js";

/** How often the state of a change is asked for, in ms. */
const askMs = 400;

interface Running {
  readonly kind: ManyChange;
  readonly state: BulkState | null;
}

interface Ended extends Running {
  readonly note: string;
  readonly problem: string | null;
}

/**
 * Changes all tasks that match a filter, also those that are not on the screen: counts them, asks for confirmation, and
 * shows how far it is.
 */
export function BulkBar(props: { table: string; filter: URLSearchParams; done: () => void }): VNode | null {
  const { table, filter, done } = props;
  const [running, setRunning] = useState<Running | null>(null);
  const [ended, setEnded] = useState<Ended | null>(null);
  const leaving = useRef(new AbortController());
  useEffect(() => {
    leaving.current = new AbortController();
    return () => leaving.current.abort();
  }, []);
  const path = `/tables/${table}/bulk`;
  const until = async (kind: ManyChange, id: string, isEnough: (state: BulkState) => boolean): Promise<BulkState> => {
    for (;;) {
      const state = await getJson<BulkState>(`${path}/${id}`, leaving.current.signal);
      setRunning({ kind, state });
      if (isEnough(state)) return state;
      await new Promise((resolve) => setTimeout(resolve, askMs));
    }
  };
  const run = async (kind: ManyChange): Promise<void> => {
    if (running !== null) return;
    setRunning({ kind, state: null });
    setEnded(null);
    let state: BulkState | null = null;
    let problem: string | null = null;
    let note = "";
    try {
      state = await postJson<BulkState>(path, { change: kind.name, filter: Object.fromEntries(filter) });
      state = await until(kind, state.id, ({ phase }) => phase !== "counting");
      const wanted = state.phase === "counted" && state.matched > 0 ? await confirmed(table, kind, state) : null;
      if (wanted !== null) {
        ({ note } = wanted);
        await postJson(`${path}/${state.id}/start`, {});
        state = await until(kind, state.id, isOver);
      } else if (state.phase === "counted" && state.matched > 0) {
        await postJson(`${path}/${state.id}/stop`, {});
        state = null;
      }
      problem = state?.error ?? null;
    } catch (error) {
      if (leaving.current.signal.aborted) return;
      problem = problemText(error);
    }
    setRunning(null);
    if (state !== null || problem !== null) setEnded({ kind, state, note, problem });
    done();
  };
  const stop = (id: string): void => void postJson(`${path}/${id}/stop`, {}).catch(() => {});
  const given = (filter.get("state") ?? "").split(",").filter((state) => state !== "");
  const hasEnded = filter.has("endedFrom") || filter.has("endedTo");
  const states: readonly string[] = given.length === 0 && hasEnded ? finalStates : given;
  // Whoever retries all names the states, because DONE is among them.
  const possible = changes.filter(({ name }) => {
    const needed: readonly string[] = changeableStates[name];
    return (
      (name !== "retry" || given.length > 0) && (states.length === 0 || states.some((each) => needed.includes(each)))
    );
  });
  return html`${
    ended !== null &&
    html`<${OutcomeNotice}
      text=${ended.problem ?? endText(ended)}
      others=${ended.state?.others ?? []}
      isComplete=${ended.problem === null && ended.note === "" && ended.state?.phase !== "stopped" && ended.state?.others.length === 0}
      close=${() => setEnded(null)}
    />`
  }
  ${
    running === null
      ? html`<span class="many bulk" role="group" aria-label="All tasks that match">
          All that match<${Matches} table=${table} filter=${filter} />:
          ${possible.map((kind) => html`<button type="button" key=${kind.name} onClick=${() => void run(kind)}>${kind.label} all</button>`)}
        </span>`
      : html`<span class="many bulk" role="group" aria-label="All tasks that match">
          <span role="status">${progressText(running)}</span>
          ${
            running.state !== null &&
            running.state.phase !== "counted" &&
            html`<progress max=${Math.max(1, running.state.matched)} value=${running.state.done} />
              <button type="button" onClick=${() => stop(running.state?.id ?? "")}>Stop</button>`
          }
        </span>`
  }`;
}

/** How many match, in all states. */
function Matches({ table, filter }: { table: string; filter: URLSearchParams }): string {
  const path = `/tables/${table}/matches?${filter.toString()}`;
  const { value, busy } = useResource<Count>(path, { table, minIntervalMs: 10_000 });
  return value === null || busy ? "" : ` (${matchesText(value)})`;
}

const matchesText = ({ value, least }: Count): string =>
  value === null ? `at least ${numberText(least)}` : numberText(value);

const isOver = ({ phase }: BulkState): boolean => ["done", "stopped", "failed"].includes(phase);

async function confirmed(table: string, kind: ManyChange, { matched: count, effects }: BulkState) {
  if (effects === null) return null;
  return await confirmChange(table, effects, {
    change: kind.name,
    count,
    title: `${kind.label} ${countOf(count)}?`,
    texts: [`${countOf(count)} ${kind.verb}. These are all that match the filter and ${kind.which}.`],
    confirm: `${kind.label} ${numberText(count)}`,
    always: true,
  });
}

function progressText({ kind, state }: Running): string {
  if (state === null || state.phase === "counting") return `${numberText(state?.matched ?? 0)} found …`;
  if (state.phase === "counted") return `${numberText(state.matched)} found`;
  return `${kind.label}: ${numberText(state.done)} of ${numberText(state.matched)}`;
}

function endText({ kind, state, note }: Ended): string {
  if (state === null || state.matched === 0) return `No task that matches can be changed so.`;
  const text = `${numberText(state.changed)} of ${countOf(state.matched)} ${kind.done}.${note}`;
  return state.phase === "stopped" ? `Stopped: ${text}` : text;
}
