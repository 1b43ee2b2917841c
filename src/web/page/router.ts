import { signal } from "@preact/signals";

/** Where the page is: path and query. */
export const address = signal(location.pathname + location.search);

export function goTo(to: string): void {
  history.pushState(null, "", to);
  address.value = to;
  window.scrollTo(0, 0);
}

/** Changes what is behind the `?` without a step of its own in the history. */
export function setQuery(query: URLSearchParams): void {
  const text = query.toString();
  const to = location.pathname + (text === "" ? "" : `?${text}`);
  history.replaceState(null, "", to);
  address.value = to;
}

/** Links within the page, and the browser's own buttons. */
export function followLinks(): void {
  window.addEventListener("popstate", () => {
    address.value = location.pathname + location.search;
  });
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
    if (link === null || !plain || link.target !== "" || link.origin !== location.origin) return;
    if (link.pathname.startsWith("/api") || link.pathname === "/metrics") return;
    event.preventDefault();
    goTo(link.pathname + link.search);
  });
}

export interface PageLocation {
  readonly table: string | null;
  readonly page: "tables" | "overview" | "tasks" | "task" | "nowhere";
  readonly task: string | null;
  readonly query: URLSearchParams;
}

export function placeOf(to: string): PageLocation {
  const { pathname, searchParams: query } = new URL(to, location.origin);
  const [first, table, second, task, ...more] = pathname.split("/").slice(1);
  if (first === "") return { page: "tables", table: null, task: null, query };
  const nowhere: PageLocation = { page: "nowhere", table: null, task: null, query };
  if (first !== "tables" || table === undefined || more.length > 0) return nowhere;
  if (second === undefined) return { page: "overview", table, task: null, query };
  if (second !== "tasks") return nowhere;
  if (task === undefined) return { page: "tasks", table, task: null, query };
  return { page: "task", table, task, query };
}
