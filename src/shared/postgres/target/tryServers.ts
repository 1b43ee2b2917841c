import type { LookupAddress } from "node:dns";
import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import type { SocketAddress } from "../transport/socketOptions.js";
import { encryptionAttempts, type Encryption, type SslMode } from "../transport/sslMode.js";
import type { TargetServer } from "./target.js";

/** What to try after a failed attempt: the next encryption, the server's next address, the next server, or nothing. */
export type NextTry = "encryption" | "address" | "server" | "none";

interface Steps<Connection, Problem> {
  readonly sslmode: SslMode;
  readonly resolve: (server: TargetServer) => Promise<readonly SocketAddress[]>;
  /** Returns the problem for an error of `resolve`. Throws if nothing more is to be tried. */
  readonly unresolved: (error: unknown, server: TargetServer) => Problem;
  readonly connect: (
    server: TargetServer,
    address: SocketAddress,
    encryption: Encryption,
  ) => Promise<{ readonly connection: Connection } | { readonly problem: Problem; readonly next: NextTry }>;
  /** Returns which problems to report of those of one address, one for each encryption that was tried. */
  readonly reported: (problems: readonly Problem[]) => readonly Problem[];
}

/**
 * Tries the servers, their addresses and the ways to encrypt a connection in order, as libpq does, until one succeeds.
 *
 * @returns the connection, or all problems; `isFinal` if the attempt ended before all servers were tried
 */
export async function tryServers<Connection, Problem>(
  servers: readonly TargetServer[],
  { sslmode, resolve, unresolved, connect, reported }: Steps<Connection, Problem>,
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
      const failed: Problem[] = [];
      let next: NextTry = "address";
      for (const encryption of encryptionsAt(sslmode, address)) {
        const outcome = await connect(server, address, encryption);
        if ("connection" in outcome) return outcome;
        failed.push(outcome.problem);
        ({ next } = outcome);
        if (next !== "encryption") break;
      }
      problems.push(...reported(failed));
      if (next === "none") return { problems, isFinal: true };
      if (next === "server") break;
    }
  }
  return { problems, isFinal: false };
}

/** Unix-domain sockets are not encrypted. */
const encryptionsAt = (sslmode: SslMode, { address }: SocketAddress): readonly Encryption[] =>
  encryptionAttempts[address === null ? "disable" : sslmode];

/** @throws Node's error if the name cannot be resolved, or the reason of `signal` */
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
