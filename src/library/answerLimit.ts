import { Socket } from "node:net";
import { PgTaskError } from "../shared/errors.js";
import type { Queryable } from "../shared/postgres/client.js";

export interface LimitedClient {
  readonly client: Queryable;
  /** Whether a statement has not been answered in time. The connection has then been destroyed. */
  isSilent(): boolean;
}

/**
 * If nothing arrives any more on an open connection, such as behind a proxy that has lost the server, a statement would
 * wait for ever. The connection is destroyed, because the answer to one statement could be taken for that to the next
 * one.
 *
 * @param limitMs Infinity for no limit
 */
export function limitAnswers(given: Queryable, limitMs: number): LimitedClient {
  let lost: PgTaskError | null = null;
  const send = async (args: unknown[]): Promise<unknown> => {
    if (lost !== null) throw lost;
    if (limitMs === Infinity) return await Reflect.apply(given.query, given, args);
    let timer: NodeJS.Timeout | undefined;
    const silence = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        lost ??= new PgTaskError("CONNECTION_LOST", `connection to the server lost: no answer within ${limitMs} ms`);
        reject(lost);
        destroy(given);
      }, limitMs);
    });
    try {
      return await Promise.race([Reflect.apply(given.query, given, args), silence]);
    } finally {
      clearTimeout(timer);
    }
  };
  const client = new Proxy(given, {
    get: (target, name) => (name === "query" ? (...args: unknown[]) => send(args) : Reflect.get(target, name, target)),
  });
  return { client, isSilent: () => lost !== null };
}

export function destroy(client: object): void {
  const socket = socketOf(client);
  if (socket === null) return;
  ignoreErrors(client);
  socket.destroy();
}

export function socketOf(client: object): Socket | null {
  const connection: unknown = Reflect.get(client, "connection");
  const stream: unknown =
    typeof connection === "object" && connection !== null ? Reflect.get(connection, "stream") : undefined;
  return stream instanceof Socket ? stream : null;
}

interface ErrorSource {
  on(event: "error", listener: () => void): unknown;
  off(event: "error", listener: () => void): unknown;
}

const emitsErrors = (client: object): client is ErrorSource =>
  "on" in client && typeof client.on === "function" && "off" in client && typeof client.off === "function";

export function ignoreErrors(client: object): () => void {
  if (!emitsErrors(client)) return () => {};
  client.on("error", ignore);
  return () => void client.off("error", ignore);
}

const ignore = (): void => {};
