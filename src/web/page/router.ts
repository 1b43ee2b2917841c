import { signal } from "@preact/signals";
import { options } from "preact";

/** The path under which pg-task is mounted, without a slash at its end; empty for the root. */
export const base = new URL("..", import.meta.url).pathname.replace(/\/$/, "");

/** The views name their links as if pg-task were mounted at the root. */
export function addBaseToLinks(): void {
  if (base === "") return;
  // That of the signals.
  const before = options.vnode?.bind(options);
  options.vnode = (node) => {
    const { type, props } = node;
    const href: unknown = type === "a" ? Reflect.get(props, "href") : null;
    if (typeof href === "string" && href.startsWith("/")) Object.assign(props, { href: `${base}${href}` });
    before?.(node);
  };
}

/** A path of the browser's location without the base. */
const withoutBase = (path: string): string =>
  path.startsWith(`${base}/`) ? path.slice(base.length) : path === base ? "/" : path;

/** Without the path under which pg-task is mounted. */
export const currentUrl = signal(withoutBase(location.pathname) + location.search);

export function navigate(to: string): void {
  history.pushState(null, "", `${base}${to}`);
  currentUrl.value = to;
  window.scrollTo(0, 0);
}

/** Adds no entry to the history. */
export function setQuery(query: URLSearchParams): void {
  const text = query.toString();
  const to = location.pathname + (text === "" ? "" : `?${text}`);
  history.replaceState(null, "", to);
  currentUrl.value = withoutBase(to);
}

/** Parameters that become "" are left out. */
export function changedQuery(query: URLSearchParams, changes: Readonly<Record<string, string>>): URLSearchParams {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "") next.delete(name);
    else next.set(name, value);
  }
  return next;
}

export const pickedQuery = (query: URLSearchParams, names: readonly string[]): URLSearchParams =>
  new URLSearchParams([...query].filter(([name, value]) => names.includes(name) && value !== ""));

/** Links and the back button work without loading a new document. */
export function interceptLinks(): void {
  window.addEventListener("popstate", () => {
    currentUrl.value = withoutBase(location.pathname) + location.search;
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
    const isOurs = base === "" || link.pathname === base || link.pathname.startsWith(`${base}/`);
    const path = withoutBase(link.pathname);
    if (!isOurs || path.startsWith("/api") || path === "/metrics") return;
    event.preventDefault();
    navigate(path + link.search);
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
  const at = (page: PageLocation["page"], table: string | null = null, task: string | null = null): PageLocation => ({
    page,
    table,
    task,
    query,
  });
  if (pathname === "/") return at("tables");
  if (pathname === "/processes") return at("processes");
  const [, table, view, task] =
    /^\/tables\/([^/]*)(?:\/(tasks|schedules|errors|add)(?:\/([^/]*))?)?$/.exec(pathname) ?? [];
  if (table === undefined) return at("unknown");
  if (view === undefined) return at("overview", table);
  if (task === undefined)
    return at(view === "schedules" || view === "errors" || view === "add" ? view : "tasks", table);
  return view === "tasks" ? at("task", table, task) : at("unknown");
}
