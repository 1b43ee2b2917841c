import { html } from "htm/preact";
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { mayChange } from "./apiClient.js";
import { PauseGroup } from "./pauses.js";
import { navigate } from "./router.js";
import { SearchBox } from "./parts.js";
import { OrderChoice } from "./listHead.js";
import { ColumnChoice } from "./columns.js";
import { localText, toIso, toLocalInput } from "./format.js";
import type { TaskSummary } from "../../tasks/types.js";
import { taskStates } from "../../shared/taskState.js";

interface FiltersProps {
  id: string;
  /** Whether `pg_task.share` divides the tasks. */
  hasShares: boolean;
  query: URLSearchParams;
  tasks: readonly TaskSummary[];
  change: (changes: Readonly<Record<string, string>>) => void;
}

export function Filters(props: FiltersProps): VNode {
  const { id, query, change } = props;
  const [isFolded, setIsFolded] = useState(true);
  const group = query.get("group") ?? "";
  const selected = (query.get("state") ?? "").split(",").filter((state) => state !== "");
  const toggle = (state: string): void => {
    const next = selected.includes(state) ? selected.filter((each) => each !== state) : [...selected, state];
    change({ state: next.join(",") });
  };
  return html`<div class=${isFolded ? "filters folded" : "filters"} role="search">
    <span class="choice" role="group" aria-label="States">
      ${taskStates.map(
        (state) =>
          html`<button
            key=${state}
            class=${`s-${state}`}
            aria-pressed=${selected.includes(state)}
            onClick=${() => toggle(state)}
          >
            ${state}
          </button>`,
      )}
    </span>
    ${chips(query).map(
      ({ text, names }) =>
        html`<button
          key=${text}
          title="Remove this condition"
          onClick=${() => change(Object.fromEntries(names.map((name) => [name, ""])))}
        >
          ${text} ✕
        </button>`,
    )}
    ${exactFilters(props).map(
      ({ name, title }) =>
        html`<${SearchBox}
          key=${name}
          placeholder=${title}
          label=${`${title} (exact match)`}
          text=${query.get(name) ?? ""}
          fold=${name !== "group" && !query.has(name)}
          find=${(text: string) => change({ [name]: text })}
        />`,
    )}
    <${SearchBox}
      wide=${true}
      placeholder="Text in input, data or error"
      text=${query.get("text") ?? ""}
      find=${(text: string) => change({ text })}
    />
    <span class=${query.has("from") || query.has("to") ? "times-filter" : "times-filter fold"}>
      <${TimeBox} label="Planned from" iso=${query.get("from")} choose=${(from: string) => change({ from })} />
      <${TimeBox} label="to" iso=${query.get("to")} choose=${(to: string) => change({ to })} />
    </span>
    <${OrderChoice} query=${query} />
    <form class="go fold" onSubmit=${(event: SubmitEvent) => goToTask(id, event)}>
      <input
        name="id"
        inputmode="numeric"
        pattern="\\s*-?[0-9]{1,19}\\s*"
        required
        placeholder="Id"
        aria-label="Task id"
        title="A whole number"
      />
      <button>Go</button>
    </form>
    <span class="gap"></span>
    <button type="button" class="narrow-only" aria-expanded=${!isFolded} onClick=${() => setIsFolded(!isFolded)}>
      ${isFolded ? "More filters" : "Fewer filters"}
    </button>
    <${ColumnChoice} />
    ${group !== "" && html`<${PauseGroup} table=${id} group=${group} />`}
    ${mayChange.value && html`<a class="button" href=${`/tables/${id}/add${group === "" ? "" : `?group=${encodeURIComponent(group)}`}`}>Add task</a>`}
  </div>`;
}

/** Conditions that come with links, and can only be removed here. */
function chips(query: URLSearchParams): { readonly text: string; readonly names: readonly string[] }[] {
  const [waitingFor, schedule, from, to] = ["waitingFor", "schedule", "endedFrom", "endedTo"].map((name) =>
    query.get(name),
  );
  return [
    ...(waitingFor ? [{ text: `Waiting for task ${waitingFor}`, names: ["waitingFor"] }] : []),
    ...(schedule ? [{ text: `Runs of schedule ${schedule}`, names: ["schedule"] }] : []),
    ...(from || to
      ? [
          {
            text: ["Ended", from && localText(from), to && `to ${localText(to)}`].filter(Boolean).join(" "),
            names: ["endedFrom", "endedTo"],
          },
        ]
      : []),
  ];
}

/** Roles are only in tables with users. */
const exactFilters = ({ hasShares, tasks, query }: Pick<FiltersProps, "hasShares" | "tasks" | "query">) => [
  { name: "group", title: "Group" },
  { name: "key", title: "Key" },
  ...(query.has("share") || hasShares ? [{ name: "share", title: "Share" }] : []),
  ...(query.has("role") || tasks.some(({ role }) => role !== null) ? [{ name: "role", title: "Role" }] : []),
];

function goToTask(table: string, event: SubmitEvent): void {
  event.preventDefault();
  if (!(event.target instanceof HTMLFormElement)) return;
  const id = new FormData(event.target).get("id");
  if (typeof id === "string") navigate(`/tables/${table}/tasks/${id.trim()}`);
}

const valueOf = ({ target }: Event): string => (target instanceof HTMLInputElement ? target.value : "");

function TimeBox({ label, iso, choose }: { label: string; iso: string | null; choose: (iso: string) => void }): VNode {
  const chosen = (event: Event): void => choose(toIso(valueOf(event)));
  return html`<label
    >${label} <input type="datetime-local" step="1" value=${toLocalInput(iso ?? "")} onChange=${chosen}
  /></label>`;
}
