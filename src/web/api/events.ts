import type { HttpBindings } from "@hono/node-server";
import type { Context } from "hono";
import { streamSSE } from "hono/streaming";
import { WakeSignal } from "../../shared/wakeSignal.js";
import type { ClusterView } from "../../shared/clusterStatus.js";
import { ApiError } from "../errors.js";
import type { WebTables } from "../data/webTables.js";

/** In ms. Shows clients and proxies that the stream is alive. */
const keepAliveEventMs = 5_000;

/** Tables are watched only while a stream is open. A stream ends when the configured tables change. */
export function eventStream(
  context: Context<{ Bindings: HttpBindings }>,
  { cluster, tables }: { readonly cluster: ClusterView; readonly tables: WebTables },
): Response {
  const id = context.req.query("table");
  const watched = id === undefined ? tables.all : [tables.byId(id)];
  if (context.req.method === "HEAD") {
    return context.body(null, 200, { "Content-Type": "text/event-stream" });
  }
  // The client sent this request on a connection that already carries an event stream. The response would never be
  // sent, and the end of the request would never be noticed.
  if (context.env.outgoing.socket === null) {
    throw new ApiError("INVALID", "an earlier request on this connection is still being answered");
  }
  return streamSSE(context, async (stream) => {
    /** Without duplicates, so that a client that stops reading cannot fill the memory. */
    const unsent = new Set<string>();
    const wake = new WakeSignal();
    const ended = new AbortController();
    const send = (event: string, data: object): void => {
      const message = `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
      // A duplicate is moved to the end, because the last `live` message about a table is the one that counts.
      unsent.delete(message);
      unsent.add(message);
      wake.notify();
    };
    const end = (): void => {
      ended.abort();
      wake.notify();
    };
    stream.onAbort(end);
    send("hello", {});
    const onClusterChange = (): void => send("cluster", {});
    cluster.on("changed", onClusterChange);
    const unsubscribers = watched.map(({ id: table, changes }) =>
      changes.subscribe({
        changed: () => send("changed", { table }),
        liveChanged: (live) => send("live", { table, live }),
      }),
    );
    unsubscribers.push(tables.onChange(end));
    while (!ended.signal.aborted) {
      const messages = [...unsent].join("");
      unsent.clear();
      if (messages !== "") await stream.write(messages);
      else if (!(await wake.wait(keepAliveEventMs))) send("keep-alive", {});
    }
    cluster.off("changed", onClusterChange);
    for (const unsubscribe of unsubscribers) unsubscribe();
  });
}
