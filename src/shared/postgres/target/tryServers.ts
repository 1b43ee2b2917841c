import type { LookupAddress } from "node:dns";
import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import type { SocketAddress } from "../transport/socketOptions.js";
import type { TargetServer } from "./target.js";

/** What to try after a failed attempt: the server's next address, the next server, or nothing more. */
export type NextTry = "address" | "server" | "none";

/** A failed attempt to connect to one address. */
export interface FailedAttempt<Problem> {
  readonly problems: readonly Problem[];
  readonly next: NextTry;
}

interface Steps<Server, Connection, Problem> {
  /** Returns the server's addresses. May throw. */
  readonly resolve: (server: Server) => Promise<readonly SocketAddress[]>;
  /** Returns the problem for an error of `resolve`. Throws if nothing more is to be tried. */
  readonly unresolved: (error: unknown, server: Server) => Problem;
  readonly connect: (
    server: Server,
    address: SocketAddress,
  ) => Promise<{ readonly connection: Connection } | FailedAttempt<Problem>>;
}

/**
 * Tries the servers and their addresses in order, as libpq does, until an attempt succeeds.
 *
 * @returns the connection, or all problems. `isFinal` tells that the attempt ended before all servers were tried,
 * because a server refused the login.
 */
export async function tryServers<Server, Connection, Problem>(
  servers: readonly Server[],
  { resolve, unresolved, connect }: Steps<Server, Connection, Problem>,
): Promise<{ readonly connection: Connection } | { readonly problems: Problem[]; readonly isFinal: boolean }> {
  const problems: Problem[] = [];
  for (const server of servers) {
    let addresses: readonly SocketAddress[] = [];
    try {
      addresses = await resolve(server);
    } catch (error) {
      problems.push(unresolved(error, server));
    }
    for (const address of addresses) {
      const outcome = await connect(server, address);
      if ("connection" in outcome) return outcome;
      problems.push(...outcome.problems);
      if (outcome.next === "none") return { problems, isFinal: true };
      if (outcome.next === "server") break;
    }
  }
  return { problems, isFinal: false };
}

/**
 * Resolves a server's host name to its addresses, in the order of the system's resolver.
 *
 * @throws Node's error if the name cannot be resolved
 * @throws the signal's reason
 */
export async function resolveServer(
  { host, address, port }: TargetServer,
  signal?: AbortSignal,
): Promise<SocketAddress[]> {
  if (/^[/@]/.test(host)) return [{ host, address: null, port }];
  if (address !== undefined || isIP(host) !== 0) return [{ host, address: address ?? host, port }];
  const found = await lookUp(host, signal ?? new AbortController().signal);
  return found.map((each) => ({ host, address: each.address, port }));
}

async function lookUp(host: string, signal: AbortSignal): Promise<LookupAddress[]> {
  return await new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason);
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    void lookup(host, { all: true, order: "verbatim" })
      .then(resolve, reject)
      .finally(() => signal.removeEventListener("abort", onAbort));
  });
}

/** Returns the elements in a random order, for `load_balance_hosts=random`. */
export function shuffled<T>(list: readonly T[]): T[] {
  return list
    .map((element) => ({ element, order: Math.random() }))
    .toSorted((a, b) => a.order - b.order)
    .map(({ element }) => element);
}
