import type { Context } from "hono";
import { streamSSE } from "hono/streaming";
import type { ClusterView } from "../shared/cluster.js";
import type { WebTables } from "./tables.js";

/** How often a word is sent that keeps proxies from closing a quiet stream, in ms. */
const breathMs = 20_000;

/**
 * Server-sent events for whoever looks: `changed` with a table's id after changes to it, `cluster`
 * when the role or a manager's state is another one. Tables are watched only while a stream is open.
 */
export function eventStream(
  context: Context,
  { cluster, tables }: { readonly cluster: ClusterView; readonly tables: WebTables },
  closing: AbortSignal,
): Response {
  const asked = context.req.query("table");
  const watched = asked === undefined ? tables.all : [tables.byId(asked)];
  return streamSSE(context, async (stream) => {
    const send = (event: string, data: object): void =>
      void stream.writeSSE({ event, data: JSON.stringify(data) });
    const changed = (): void => send("cluster", {});
    cluster.on("changed", changed);
    const leave = watched.map(({ id, watch }) => watch.add(() => send("changed", { table: id })));
    const breath = setInterval(() => send("breath", {}), breathMs);
    send("hello", {});
    await new Promise<void>((resolve) => {
      stream.onAbort(resolve);
      if (closing.aborted) resolve();
      closing.addEventListener("abort", () => resolve(), { once: true });
    });
    clearInterval(breath);
    cluster.off("changed", changed);
    for (const each of leave) each();
  });
}
