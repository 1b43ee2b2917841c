import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Cluster } from "../api/schemas.js";
import { address, placeOf, type PageLocation } from "./router.js";
import { Gate } from "./loginForm.js";
import { Header } from "./header.js";
import { Overview } from "./overview.js";
import { useResource } from "./resource.js";
import { gate } from "./apiClient.js";
import { Tables } from "./tables.js";
import { TaskListView } from "./taskList.js";
import { TaskView } from "./taskPage.js";
import { Trouble } from "./connectionProblem.js";

export function App(): VNode {
  return gate.value === null ? html`<${Shown} />` : html`<${Gate} />`;
}

function Shown(): VNode {
  const asked = useResource<Cluster>("/tables", { leastMs: 1_000, everyMs: 10_000 });
  const cluster = asked.value;
  const now = useSeconds();
  const place = placeOf(address.value);
  const [only] = cluster?.tables ?? [];
  // With one table there is nothing to choose from.
  const home: PageLocation =
    place.page === "tables" && cluster?.tables.length === 1 && only !== undefined
      ? { ...place, page: "overview", table: only.id }
      : place;
  useEffect(() => {
    document.title = title(home);
  });
  return html`
    <${Header} cluster=${cluster} place=${home} />
    <${Trouble} of=${asked} top=${true} />
    ${content(home, cluster, now)}
  `;
}

function content(place: PageLocation, cluster: Cluster | null, now: number): VNode | null {
  const { page, table: id, task, query } = place;
  if (page === "tables") return cluster === null ? null : html`<${Tables} cluster=${cluster} />`;
  if (id === null || (cluster !== null && !cluster.tables.some((each) => each.id === id))) {
    return html`<main>
      <p class="empty">There is nothing here. <a href="/">Go to the tables.</a></p>
    </main>`;
  }
  const table = cluster?.tables.find((each) => each.id === id) ?? null;
  if (page === "overview") return html`<${Overview} key=${id} id=${id} table=${table} />`;
  if (page === "tasks")
    return html`<${TaskListView} key=${id} id=${id} query=${query} now=${now} />`;
  return html`<${TaskView} key=${`${id} ${task}`} id=${id} task=${task} now=${now} />`;
}

function title({ page, task }: PageLocation): string {
  if (page === "task") return `Task ${task} · pg-task`;
  return page === "tasks" ? "Tasks · pg-task" : "pg-task";
}

/** The time, anew each second while the page can be seen. */
function useSeconds(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") setNow(Date.now());
    }, 1_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
