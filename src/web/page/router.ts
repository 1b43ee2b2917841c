import { signal } from "@preact/signals";

/** The path and the query of the page's address. */
export const currentUrl = signal(location.pathname + location.search);

export function navigate(to: string): void {
  history.pushState(null, "", to);
  currentUrl.value = to;
  window.scrollTo(0, 0);
}

/** Replaces the query without adding an entry to the browser's history. */
export function setQuery(query: URLSearchParams): void {
  const text = query.toString();
  const to = location.pathname + (text === "" ? "" : `?${text}`);
  history.replaceState(null, "", to);
  currentUrl.value = to;
}

/** Makes links within the page and the back and forward buttons work without loading a new document. */
export function interceptLinks(): void {
  window.addEventListener("popstate", () => {
    currentUrl.value = location.pathname + location.search;
  });
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    const isPlainClick = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
    if (
      link === null ||
      !isPlainClick ||
      event.defaultPrevented ||
      link.target !== "" ||
      link.origin !== location.origin
    )
      return;
    if (link.pathname.startsWith("/api") || link.pathname === "/metrics") return;
    event.preventDefault();
    navigate(link.pathname + link.search);
  });
}

export interface PageLocation {
  readonly table: string | null;
  readonly page: "tables" | "processes" | "overview" | "tasks" | "task" | "schedules" | "errors" | "add" | "unknown";
  readonly task: string | null;
  readonly query: URLSearchParams;
}

export function parseLocation(to: string): PageLocation {
  const { pathname, searchParams: query } = new URL(to, location.origin);
  const [first, table, second, task, ...more] = pathname.split("/").slice(1);
  if (first === "") return { page: "tables", table: null, task: null, query };
  if (first === "processes" && table === undefined) return { page: "processes", table: null, task: null, query };
  const unknown: PageLocation = { page: "unknown", table: null, task: null, query };
  if (first !== "tables" || table === undefined || more.length > 0) return unknown;
  if (second === undefined) return { page: "overview", table, task: null, query };
  if ((second === "schedules" || second === "errors" || second === "add") && task === undefined) {
    return { page: second, table, task: null, query };
  }
  if (second !== "tasks") return unknown;
  if (task === undefined) return { page: "tasks", table, task: null, query };
  return { page: "task", table, task, query };
}
