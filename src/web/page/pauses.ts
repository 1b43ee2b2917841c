import { html } from "htm/preact";
import type { VNode } from "preact";
import { useRef } from "preact/hooks";
import type { PauseResult } from "../api/changeSchemas.js";
import type { TableInfo, TableSummary } from "../api/schemas.js";
import { printableLine } from "../../shared/printable.js";
import { mayChange, postJson } from "./apiClient.js";
import { announce, ask } from "./dialog.js";
import { useKeptFocus } from "./focus.js";
import { useActions } from "./parts.js";
import { useResource } from "./resource.js";

type Pauses = TableSummary["paused"];

export function TableActions({ id, table }: { id: string; table: TableInfo | null }): VNode | null {
  const paused = table?.summary?.paused;
  const container = useRef<HTMLDivElement>(null);
  // A pause removes the button here, and its end removes the notice with the other one.
  useKeptFocus(
    () => document.querySelector("main"),
    () => () =>
      container.current?.querySelector<HTMLElement>("button") ??
      document.querySelector<HTMLElement>("main .with-action button") ??
      container.current?.querySelector<HTMLElement>("a") ??
      null,
  );
  if (!mayChange.value) return null;
  const mayPause = paused !== undefined && !paused.some(({ group }) => group === null);
  return html`<div class="row table-actions" ref=${container}>
    <span class="gap"></span>
    ${mayPause && html`<${PauseButton} table=${id} group=${null} paused=${paused} />`}
    <a class="button" href=${`/tables/${id}/add`}>Add task</a>
  </div>`;
}

/** For places that do not know the pauses. */
export function PauseGroup({ table, group }: { table: string; group: string }): VNode | null {
  const { value } = useResource<TableInfo>(`/tables/${table}`, { table, minIntervalMs: 1_000 });
  const paused = value?.summary?.paused;
  return paused === undefined ? null : html`<${PauseButton} table=${table} group=${group} paused=${paused} />`;
}

/** Shows a button that pauses or resumes a group, or the whole table if `group` is null. */
export function PauseButton(props: {
  table: string;
  group: string | null;
  paused: Pauses;
  /** Whether the label names what is paused only for screen readers. */
  short?: boolean;
}): VNode | null {
  const { table, group, paused, short = false } = props;
  const { run, failure } = useActions(() => {});
  const container = useRef<HTMLElement>(null);
  useKeptFocus(
    () => container.current,
    () => () => container.current?.querySelector("button") ?? null,
  );
  if (!mayChange.value) return null;
  const what = group === null ? "table" : group === "" ? "the empty group" : `group ${printableLine(group)}`;
  const change = paused.some((each) => each.group === group) ? "resume" : "pause";
  const press = async (): Promise<boolean> => {
    const answer = change === "pause" ? await askForPause(what, group) : null;
    if (change === "pause" && answer === null) return false;
    const reason = answer === null || answer.entered === "" ? {} : { reason: answer.entered };
    const result = await postJson<PauseResult>(`/tables/${table}/${change}`, { group, ...reason });
    announce(`${resultText(what, change, result)}.`);
    return true;
  };
  const verb = change === "pause" ? "Pause" : "Resume";
  return html`<span class="actions" ref=${container}>
    <button type="button" aria-label=${`${verb} ${what}`} title=${`${verb} ${what}`} onClick=${() => void run(press)}>
      ${short ? verb : `${verb} ${group === null ? "table" : "group"}`}
    </button>
    ${failure}
  </span>`;
}

async function askForPause(what: string, group: string | null) {
  const scope = group === null ? "No further task of this table starts" : "No further task of this group starts";
  const text = `${scope} until you resume it. Running tasks finish.`;
  return await ask({ title: `Pause ${what}?`, text, confirm: "Pause it", field: "Reason, shown to others" });
}

function resultText(what: string, change: "pause" | "resume", { changed, paused }: PauseResult): string {
  const name = `${what.slice(0, 1).toUpperCase()}${what.slice(1)}`;
  if (change === "pause") return changed ? `${name} paused` : `${name} was already paused`;
  const rest = paused ? "; the whole table is still paused" : "";
  return `${name} ${changed ? "resumed" : "was not paused"}${rest}`;
}
