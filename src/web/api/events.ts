import type { HttpBindings } from "@hono/node-server";
import type { Context } from "hono";
import { streamSSE } from "hono/streaming";
import { WakeSignal } from "../../shared/wakeSignal.js";
import type { ClusterView } from "../../shared/clusterStatus.js";
import { WebProblem } from "../errors.js";
import type { WebTables } from "../data/webTables.js";

/**
 * How often a word is sent by which the other side knows that the stream is still one, and proxies
 * that it is in use, in ms.
 */
const breathMs = 5_000;

/**
 * Server-sent events for whoever looks: `changed` with a table's id after changes to it, `live` with
 * whether its changes are heard of, `cluster` when the role or a manager's state is another one.
 * Tables are watched only while a stream is open. It ends when the configuration has other tables.
 */
export function eventStream(
  context: Context<{ Bindings: HttpBindings }>,
  { cluster, tables }: { readonly cluster: ClusterView; readonly tables: WebTables },
): Response {
  const asked = context.req.query("table");
  const watched = asked === undefined ? tables.all : [tables.byId(asked)];
  if (context.req.method === "HEAD") {
    return context.body(null, 200, { "Content-Type": "text/event-stream" });
  }
  // Behind a stream its turn never comes, nor would its end be noticed.
  if (context.env.outgoing.socket === null) {
    throw new WebProblem("INVALID", "another request of the same connection is not answered yet");
  }
  return streamSSE(context, async (stream) => {
    /** What was not sent yet, each once: a reader that does not read costs no more than that. */
    const unsent = new Set<string>();
    const bell = new WakeSignal();
    const ending = new AbortController();
    const say = (event: string, data: object): void => {
      const message = `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
      // What is said last of a thing counts.
      unsent.delete(message);
      unsent.add(message);
      bell.notify();
    };
    const end = (): void => {
      ending.abort();
      bell.notify();
    };
    stream.onAbort(end);
    say("hello", {});
    const changed = (): void => say("cluster", {});
    cluster.on("changed", changed);
    const leave = watched.map(({ id, watch }) =>
      watch.add({
        changed: () => say("changed", { table: id }),
        live: (live) => say("live", { table: id, live }),
      }),
    );
    const unfollow = tables.follow(end);
    while (!ending.signal.aborted) {
      const messages = [...unsent].join("");
      unsent.clear();
      if (messages !== "") await stream.write(messages);
      else if (!(await bell.wait(breathMs))) say("breath", {});
    }
    unfollow();
    cluster.off("changed", changed);
    for (const each of leave) each();
  });
}
