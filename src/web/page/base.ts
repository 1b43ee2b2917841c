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
export const withoutBase = (path: string): string =>
  path.startsWith(`${base}/`) ? path.slice(base.length) : path === base ? "/" : path;
