import { html } from "htm/preact";
import { render, type VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ClusterInfo } from "../api/schemas.js";
import { addBaseToLinks, currentUrl, interceptLinks, parseLocation, type PageLocation } from "./router.js";
import { AddTaskView } from "./addTask.js";
import { Dialogs } from "./dialog.js";
import { focusMain } from "./focus.js";
import { LoginForm } from "./loginForm.js";
import { Header } from "./header.js";
import { Overview } from "./overview.js";
import { useResource } from "./resource.js";
import { followToken, tokenProblem } from "./apiClient.js";
import { ErrorsView } from "./errors.js";
import { ProcessesView } from "./processes.js";
import { SchedulesView } from "./schedules.js";
import { Tables } from "./tables.js";
import { TaskListView } from "./taskList.js";
import { TaskView } from "./taskPage.js";
import { StaleNotice } from "./parts.js";
import { isConnected, subscribeToChanges } from "./liveEvents.js";
import { followTheme } from "./theme.js";

function App(): VNode {
  return tokenProblem.value === null ? html`<${MainView} />` : html`<${LoginForm} />`;
}

function MainView(): VNode {
  const requested = parseLocation(currentUrl.value);
  // The other views show only which tables there are.
  const repeats = ["tables", "overview"].includes(requested.page) || !isConnected.value;
  const resource = useResource<ClusterInfo>("/tables", { minIntervalMs: 1_000, pollMs: 10_000, repeats });
  const cluster = resource.value;
  const now = useClock();
  const [first, ...others] = cluster?.tables ?? [];
  // If there is only one table, the page shows that table instead of a list of tables.
  const location: PageLocation =
    requested.page === "tables" && first !== undefined && others.length === 0
      ? { ...requested, page: "overview", table: first.id }
      : requested;
  useEffect(() => {
    document.title = title(location);
  });
  return html`
    <a class="skip" href="#main" onClick=${skipToMain}>Skip to the content</a>
    <${Header} cluster=${cluster} location=${location} />
    <${StaleNotice} of=${resource} top=${true} />
    ${content(location, cluster, now)}
    <${Dialogs} />
  `;
}

/** Moves the focus to the content. The link itself would be taken for a link to another view. */
function skipToMain(event: Event): void {
  event.preventDefault();
  focusMain();
}

function content(location: PageLocation, cluster: ClusterInfo | null, now: number): VNode | null {
  const { page, table: id, task, query } = location;
  if (page === "tables" && cluster === null) {
    return html`<main id="main" aria-busy="true"><h1 class="hidden">pg-task</h1></main>`;
  }
  if (page === "tables") return html`<${Tables} cluster=${cluster} query=${query} />`;
  if (page === "processes") return html`<${ProcessesView} now=${now} />`;
  if (id === null || (cluster !== null && !cluster.tables.some((each) => each.id === id))) {
    return html`<main id="main">
      <h1>Page not found</h1>
      <p><a href="/">Show all tables</a></p>
    </main>`;
  }
  const table = cluster?.tables.find((each) => each.id === id) ?? null;
  if (page === "overview") return html`<${Overview} key=${id} id=${id} table=${table} query=${query} />`;
  if (page === "tasks")
    return html`<${TaskListView}
      key=${id}
      id=${id}
      hasShares=${table !== null && table.share !== ""}
      query=${query}
      now=${now}
    />`;
  if (page === "schedules") return html`<${SchedulesView} key=${id} id=${id} query=${query} now=${now} />`;
  if (page === "add") return html`<${AddTaskView} key=${`${id} ${query.toString()}`} id=${id} query=${query} />`;
  if (page === "errors") return html`<${ErrorsView} key=${id} id=${id} />`;
  return html`<${TaskView} key=${`${id} ${task}`} id=${id} task=${task} now=${now} />`;
}

const titles: Readonly<Partial<Record<PageLocation["page"], string>>> = {
  processes: "Processes",
  tasks: "Tasks",
  schedules: "Schedules",
  errors: "Errors",
  add: "Add a task",
};

function title({ page, task }: PageLocation): string {
  const of = page === "task" ? `Task ${task}` : titles[page];
  return of === undefined ? "pg-task" : `${of} · pg-task`;
}

/** The clock stands still while the page is hidden. */
function useClock(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") setNow(Date.now());
    }, 1_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

addBaseToLinks();
followTheme();
followToken();
interceptLinks();
subscribeToChanges();
render(html`<${App} />`, document.body);
