import { once } from "node:events";
import type { Server } from "node:http";
import { sleep } from "../../shared/backoff.js";
import type { ClusterView } from "../../shared/clusterStatus.js";
import { listenAddresses, type ListenAddress } from "../../shared/config/listenAddress.js";
import { systemErrorCode } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { SharedPorts } from "../../shared/sharedPorts.js";
import { explainSystemError } from "../../shared/systemErrors.js";

/** In ms. */
const retryMs = 2_000;
/** After so many attempts, the log says why they fail, if the other processes could not be asked. */
const maxSilentTries = 5;

export interface SharedAddressOptions {
  readonly cluster: ClusterView;
  readonly ports: SharedPorts;
  readonly log: Log;
  /** `pg_http.listen` */
  readonly listen: () => string;
  readonly open: (address: ListenAddress) => Promise<Server>;
  readonly pageUrl: (server: Server) => string;
}

/**
 * Keeps a server listening. The address can be unavailable, for example because the leader on the same machine uses it.
 * This is logged once, as a warning unless another process of the cluster says that it uses the address, and retried.
 *
 * Of the processes of a cluster that run on one machine with the same address, the leader listens on it, because only
 * the leader knows the rates. If another one was first, the leader asks it to free the port.
 */
export class SharedAddress {
  readonly #options: SharedAddressOptions;
  readonly #stopping = new AbortController();
  /** Aborted when the server must listen on another address or must end. */
  #listening = new AbortController();
  #retryNow = new AbortController();
  #isLeader = false;
  #isSeeking = true;
  /** The port on which the server listens, and what makes it free the port. Null if it does not listen. */
  #inUse: { readonly port: number; readonly free: () => void } | null = null;
  readonly #portsOfOthers = new Set<number>();
  #serving: Promise<void> = Promise.resolve();
  #reportFirst: (url: string | null) => void = () => {};
  /** Resolves with the page's URL when the server listens, or with null when its first attempt has failed. */
  readonly first = new Promise<string | null>((resolve) => (this.#reportFirst = resolve));

  constructor(options: SharedAddressOptions) {
    this.#options = options;
    const { cluster, ports } = options;
    cluster.on("changed", () => this.#followRole());
    ports.on("wanted", (port) => {
      if (!this.#isLeader && this.#inUse?.port === port) this.#inUse.free();
    });
    ports.on("freed", () => {
      if (this.#isLeader) this.#retryNow.abort();
    });
    ports.on("asked", (port) => {
      if (this.#inUse?.port === port) ports.tell("used", port);
    });
    ports.on("used", (port) => {
      this.#portsOfOthers.add(port);
      this.#retryNow.abort();
    });
  }

  start(): void {
    this.#followRole();
    this.restart();
  }

  /** Closes all HTTP connections, and listens on the address that is configured now. */
  restart(): void {
    this.#listening.abort();
    this.#listening = new AbortController();
    this.#serving = this.#serve(listenAddresses(this.#options.listen()), this.#listening.signal, this.#serving);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#listening.abort();
    await this.#serving;
  }

  /** A new leader tries the address again at once, and so does a process that can now reach its cluster. */
  #followRole(): void {
    const { role } = this.#options.cluster;
    const isLeader = role === "leader";
    const isSeeking = role === "seeking";
    if ((isLeader && !this.#isLeader) || (this.#isSeeking && !isSeeking)) this.#retryNow.abort();
    this.#isLeader = isLeader;
    this.#isSeeking = isSeeking;
  }

  async #serve(addresses: readonly ListenAddress[], signal: AbortSignal, previous: Promise<void>): Promise<void> {
    await previous;
    if (addresses.length === 0 || this.#stopping.signal.aborted) return;
    let isExpected = false;
    while (!signal.aborted) {
      const server = await this.#bind(addresses, { signal, isExpected });
      if (server === null) return this.#reportFirst(null);
      const freed = await this.#serveOn(server, signal);
      if (freed === null) return;
      this.#options.log.info({ port: freed }, "HTTP port left to the leader");
      this.#options.ports.tell("freed", freed);
      // From now on, the leader uses the address.
      isExpected = true;
      await this.#pause(signal);
    }
  }

  /** Returns the port that was freed for the leader, or null if `signal` was aborted. */
  async #serveOn(server: Server, signal: AbortSignal): Promise<number | null> {
    let wanted: number | null = null;
    if (!signal.aborted) {
      const url = this.#options.pageUrl(server);
      this.#options.log.info({ url }, "page");
      this.#reportFirst(url);
      await new Promise<void>((resolve) => {
        signal.addEventListener("abort", () => resolve(), { once: true });
        const port = portOf(server);
        this.#inUse = {
          port,
          free: () => {
            wanted = port;
            resolve();
          },
        };
      });
      this.#inUse = null;
      // Only what happens from now on shortens the wait before the next attempt: the leader must be the first to try.
      this.#retryNow = new AbortController();
    }
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
    return signal.aborted ? null : wanted;
  }

  /** @param options.isExpected whether the leader uses the address, so that its use is not logged */
  async #bind(
    addresses: readonly ListenAddress[],
    { signal, isExpected }: { readonly signal: AbortSignal; readonly isExpected: boolean },
  ): Promise<Server | null> {
    const { cluster, log, open, ports } = this.#options;
    let isLogged = isExpected;
    let isAsked = false;
    this.#portsOfOthers.clear();
    for (let tries = 1; !signal.aborted; tries += 1) {
      let failure: unknown;
      const taken: number[] = [];
      for (const address of addresses) {
        try {
          return await open(address);
        } catch (error) {
          failure = error;
          if (systemErrorCode(error) === "EADDRINUSE") taken.push(address.port);
        }
      }
      this.#reportFirst(null);
      const listen = this.#options.listen();
      const shared = taken.find((port) => this.#portsOfOthers.has(port));
      if (!isLogged && shared !== undefined) {
        isLogged = true;
        log.info({ listen, port: shared }, "HTTP address used by another process of the cluster, waiting");
      } else if (!isLogged && (taken.length === 0 || this.#isLeader || isAsked || tries === maxSilentTries)) {
        isLogged = true;
        log.warn({ listen, reason: explainSystemError(failure) }, "HTTP address unavailable, retrying");
      } else if (!isLogged) {
        for (const port of taken) ports.tell("asked", port);
        isAsked = cluster.role !== "seeking";
      }
      if (this.#isLeader) for (const port of taken) ports.tell("wanted", port);
      await this.#pause(signal);
    }
    return null;
  }

  async #pause(signal: AbortSignal): Promise<void> {
    await sleep(retryMs, AbortSignal.any([signal, this.#retryNow.signal]));
    this.#retryNow = new AbortController();
  }
}

export function portOf(server: Server): number {
  const address = server.address();
  if (typeof address !== "object" || address === null) throw new TypeError("expected a server that listens on a port");
  return address.port;
}
