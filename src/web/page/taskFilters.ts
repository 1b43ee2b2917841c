import { html } from "htm/preact";
import type { VNode } from "preact";
import { mayChange } from "./apiClient.js";
import { PauseGroup } from "./pauses.js";
import { navigate } from "./router.js";
import { SearchBox } from "./parts.js";
import { sortableColumns } from "./listHead.js";
import { toIso, toLocalInput } from "./format.js";
import { taskStates } from "../../shared/taskState.js";

export function Filters(props: {
  id: string;
  query: URLSearchParams;
  change: (name: string, to: string) => void;
}): VNode {
  const { id, query, change } = props;
  const group = query.get("group") ?? "";
  const waitingFor = query.get("waitingFor") ?? "";
  const selected = (query.get("state") ?? "").split(",").filter((state) => state !== "");
  const toggle = (state: string): void => {
    const next = selected.includes(state) ? selected.filter((each) => each !== state) : [...selected, state];
    change("state", next.join(","));
  };
  return html`<div class="filters" role="search">
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
    ${
      waitingFor !== "" &&
      html`<button title="Show all tasks" onClick=${() => change("waitingFor", "")}>
        Waiting for task ${waitingFor} ✕
      </button>`
    }
    <${SearchBox}
      placeholder="Group"
      label="Group (exact match)"
      text=${query.get("group") ?? ""}
      find=${(text: string) => change("group", text)}
    />
    <${SearchBox}
      wide=${true}
      placeholder="Text in input, data or error"
      text=${query.get("text") ?? ""}
      find=${(text: string) => change("text", text)}
    />
    <span class="times-filter">
      <${TimeBox} label="Planned from" iso=${query.get("from")} choose=${(iso: string) => change("from", iso)} />
      <${TimeBox} label="to" iso=${query.get("to")} choose=${(iso: string) => change("to", iso)} />
    </span>
    <label class="narrow-only">
      Sort
      <select value=${query.get("sort") ?? ""} onChange=${(event: Event) => change("sort", valueOf(event))}>
        <option value="">by id</option>
        ${sortableColumns.flatMap((name) => [
          html`<option key=${name} value=${name}>by ${name}</option>`,
          html`<option key=${`-${name}`} value=${`-${name}`}>by ${name}, descending</option>`,
        ])}
      </select>
    </label>
    <form class="go" onSubmit=${(event: SubmitEvent) => goToTask(id, event)}>
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
    ${group !== "" && html`<${PauseGroup} table=${id} group=${group} />`}
    ${mayChange.value && html`<a class="button" href=${`/tables/${id}/add${group === "" ? "" : `?group=${encodeURIComponent(group)}`}`}>Add task</a>`}
  </div>`;
}

function goToTask(table: string, event: SubmitEvent): void {
  event.preventDefault();
  if (!(event.target instanceof HTMLFormElement)) return;
  const id = new FormData(event.target).get("id");
  if (typeof id === "string") navigate(`/tables/${table}/tasks/${id.trim()}`);
}

const valueOf = ({ target }: Event): string =>
  target instanceof HTMLInputElement || target instanceof HTMLSelectElement ? target.value : "";

function TimeBox({ label, iso, choose }: { label: string; iso: string | null; choose: (iso: string) => void }): VNode {
  const chosen = (event: Event): void => choose(toIso(valueOf(event)));
  return html`<label
    >${label} <input type="datetime-local" step="1" value=${toLocalInput(iso ?? "")} onChange=${chosen}
  /></label>`;
}
