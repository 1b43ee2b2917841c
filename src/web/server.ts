import { once } from "node:events";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { isDeepStrictEqual } from "node:util";
import { getRequestListener } from "@hono/node-server";
import type { Hono } from "hono";
import { sleep } from "../shared/backoff.js";
import {
  isLoopback,
  listenAddresses,
  parseHosts,
  parseNetworks,
  type ListenAddress,
} from "../shared/config/listenAddress.js";
import type { ClusterView } from "../shared/clusterStatus.js";
import type { Configuration } from "../shared/config/types.js";
import { Lifecycle, type LifecycleHooks } from "../shared/lifecycle.js";
import type { Log } from "../shared/log.js";
import { systemErrorCode } from "../shared/errors.js";
import type { SharedPorts } from "../shared/sharedPorts.js";
import { explainSystemError } from "../shared/systemErrors.js";
import { createApp } from "./app.js";
import { Metrics } from "./metrics/metrics.js";
import { ConnectionPool } from "./data/connectionPool.js";
import { WebTables } from "./data/webTables.js";
import { ConnectionLimit } from "./http/connectionLimit.js";
import { createLimitedServer, httpLimits, type HttpLimits } from "./http/limits.js";
import { mountOf, mountRequest, type Login } from "./http/mount.js";
import { rareReport } from "./http/rareReport.js";
import { randomToken } from "./http/token.js";

/** In ms. */
const retryMs = 2_000;
/** After so many attempts, the log says why they fail, if the other processes could not be asked. */
const maxSilentTries = 5;

export interface WebHandlerOptions {
  readonly base?: string | undefined;
  readonly login?: ((request: IncomingMessage) => Login | null | Promise<Login | null>) | undefined;
}

export interface WebServerOptions {
  readonly cluster: ClusterView;
  readonly ports: SharedPorts;
  readonly log: Log;
  readonly version: string;
  readonly limits?: HttpLimits;
}

/**
 * Serves the page, the API, metrics and health checks of this process. The address can be unavailable, for example
 * because the leader on the same machine uses it. The server then logs this once, as a warning unless another process of
 * the cluster says that it uses the address, and keeps retrying. Tasks run even if the server cannot listen.
 *
 * Of the processes of a cluster that run on one machine with the same address, the leader listens on it, because only
 * the leader knows the rates. If another one was first, the leader asks it to free the port.
 */
export class WebServer implements LifecycleHooks {
  readonly #options: WebServerOptions;
  readonly #tables: WebTables;
  readonly #metrics: Metrics;
  readonly #lifecycle: Lifecycle;
  readonly #stopping = new AbortController();
  readonly #randomToken = randomToken();
  readonly #limits: HttpLimits;
  readonly #connections: ConnectionLimit;
  #configuration: Configuration;
  #controlPool: ConnectionPool;
  readonly #oldPools: Promise<void>[] = [];
  #app: Hono | null = null;
  #host = "";
  /** Aborted when the server must listen on another address or must end. */
  #listening = new AbortController();
  #retryNow = new AbortController();
  #isLeader = false;
  #isSeeking = true;
  /** The port on which the server listens, and what makes it free the port. Null if it does not listen. */
  #inUse: { readonly port: number; readonly free: () => void } | null = null;
  readonly #portsOfOthers = new Set<number>();
  #serving: Promise<void> = Promise.resolve();
  #reportFirstAddress: (url: string | null) => void = () => {};
  /** Resolves with the page's URL when the server listens, or with null when its first attempt has failed. */
  readonly firstAddress = new Promise<string | null>((resolve) => (this.#reportFirstAddress = resolve));

  constructor(configuration: Configuration, options: WebServerOptions) {
    const { cluster, ports, log, version, limits = httpLimits } = options;
    this.#options = options;
    this.#configuration = configuration;
    this.#controlPool = new ConnectionPool(configuration.control, { isControl: true });
    this.#tables = new WebTables((key) => cluster.releasedReason(key));
    this.#limits = limits;
    const reportClosed = rareReport<void>((_, closed) =>
      log.warn({ most: limits.connections, closed }, "HTTP connections closed: there are too many"),
    );
    this.#connections = new ConnectionLimit(limits, reportClosed);
    this.#metrics = new Metrics({
      cluster,
      tables: this.#tables,
      maxSessions: this.#maxSessions,
      reserve: () => this.#configuration.parameters["pg_conf.reserve"],
      version,
    });
    this.#lifecycle = new Lifecycle(this, { name: "web", log });
    cluster.on("worked", (key) => this.#recordStatistics(key));
    cluster.on("changed", () => this.#followRole());
    cluster.on("released", () => this.#tables.setEntries(this.#configuration));
    ports.on("wanted", (port) => {
      if (!this.#isLeader && this.#inUse?.port === port) this.#inUse.free();
    });
    ports.on("freed", () => {
      if (this.#isLeader) this.#retryNow.abort();
    });
    ports.on("asked", (port) => {
      if (this.#inUse?.port === port) ports.announceUsed(port);
    });
    ports.on("used", (port) => {
      this.#portsOfOthers.add(port);
      this.#retryNow.abort();
    });
  }

  run(): Promise<void> {
    return this.#lifecycle.start();
  }

  /** Stops listening. Resolves when all of the server's connections are closed. */
  end(): Promise<Error | null> {
    return this.#lifecycle.stop();
  }

  /** Answers a request that a server of the program has received. */
  async handle(request: IncomingMessage, response: ServerResponse, { base, login }: WebHandlerOptions): Promise<void> {
    this.#app ??= this.#createApp();
    // What Express has parsed already cannot be read again.
    if (request.readableEnded && "body" in request) {
      Object.assign(request, { rawBody: Buffer.from(JSON.stringify(request.body)) });
    }
    const path = base ?? ("baseUrl" in request && typeof request.baseUrl === "string" ? request.baseUrl : "");
    mountRequest(request, { base: path, isForeign: true, login: (await login?.(request)) ?? null });
    await getRequestListener(this.#app.fetch, { overrideGlobalObjects: false })(request, response);
  }

  /** Applies a new configuration. If the address or a token has changed, all HTTP connections are closed. */
  reload(configuration: Configuration): void {
    const before = this.#configuration.parameters;
    const after = configuration.parameters;
    if (!isDeepStrictEqual(this.#configuration.control, configuration.control)) {
      this.#oldPools.push(this.#controlPool.close());
      this.#controlPool = new ConnectionPool(configuration.control, { isControl: true });
    }
    this.#configuration = configuration;
    this.#tables.setEntries(configuration);
    const isSame = (["pg_http.listen", "pg_http.token", "pg_http.readonly"] as const).every(
      (name) => before[name] === after[name],
    );
    if (!isSame) this.#restartListening();
  }

  async start(): Promise<void> {
    this.#tables.setEntries(this.#configuration);
    this.#followRole();
    this.#restartListening();
  }

  async drain(): Promise<void> {}

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#listening.abort();
    await this.#serving;
    this.#metrics.close();
    await Promise.all([this.#tables.close(), this.#controlPool.close(), ...this.#oldPools]);
  }

  readonly #maxSessions = (): number => this.#configuration.parameters["pg_conf.max"];

  #recordStatistics(key: string): void {
    const view = this.#options.cluster.manager(key);
    const table = this.#tables.byKey(key);
    if (view === null || table === null) return;
    table.history.add(view);
    table.changes.noteChange();
  }

  #restartListening(): void {
    this.#listening.abort();
    this.#listening = new AbortController();
    const { signal } = this.#listening;
    const addresses = listenAddresses(this.#configuration.parameters["pg_http.listen"]);
    this.#serving = this.#serve(addresses, signal, this.#serving);
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
    this.#app ??= this.#createApp();
    let isExpected = false;
    while (!signal.aborted) {
      const server = await this.#bind(this.#app, addresses, { signal, isExpected });
      if (server === null) return this.#reportFirstAddress(null);
      const freed = await this.#serveOn(server, signal);
      if (freed === null) return;
      this.#options.log.info({ port: freed }, "HTTP port left to the leader");
      this.#options.ports.announceFreed(freed);
      // From now on, the leader uses the address.
      isExpected = true;
      await this.#pause(signal);
    }
  }

  /** Returns the port that was freed for the leader, or null if `signal` was aborted. */
  async #serveOn(server: Server, signal: AbortSignal): Promise<number | null> {
    let wanted: number | null = null;
    if (!signal.aborted) {
      const url = this.#pageUrl(server);
      this.#options.log.info({ url }, "page");
      this.#reportFirstAddress(url);
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
    app: Hono,
    addresses: readonly ListenAddress[],
    { signal, isExpected }: { readonly signal: AbortSignal; readonly isExpected: boolean },
  ): Promise<Server | null> {
    let isLogged = isExpected;
    let isAsked = false;
    this.#portsOfOthers.clear();
    for (let tries = 1; !signal.aborted; tries += 1) {
      let failure: unknown;
      const taken: number[] = [];
      for (const address of addresses) {
        try {
          return await this.#listen(app, address);
        } catch (error) {
          failure = error;
          if (systemErrorCode(error) === "EADDRINUSE") taken.push(address.port);
        }
      }
      this.#reportFirstAddress(null);
      const listen = this.#configuration.parameters["pg_http.listen"];
      const shared = taken.find((port) => this.#portsOfOthers.has(port));
      if (!isLogged && shared !== undefined) {
        isLogged = true;
        this.#options.log.info(
          { listen, port: shared },
          "HTTP address used by another process of the cluster, waiting",
        );
      } else if (!isLogged && (taken.length === 0 || this.#isLeader || isAsked || tries === maxSilentTries)) {
        isLogged = true;
        this.#options.log.warn({ listen, reason: explainSystemError(failure) }, "HTTP address unavailable, retrying");
      } else if (!isLogged) {
        for (const port of taken) this.#options.ports.ask(port);
        isAsked = this.#options.cluster.role !== "seeking";
      }
      if (this.#isLeader) for (const port of taken) this.#options.ports.request(port);
      await this.#pause(signal);
    }
    return null;
  }

  async #pause(signal: AbortSignal): Promise<void> {
    await sleep(retryMs, AbortSignal.any([signal, this.#retryNow.signal]));
    this.#retryNow = new AbortController();
  }

  async #listen(app: Hono, { host, port }: ListenAddress): Promise<Server> {
    const listener = getRequestListener(app.fetch, { overrideGlobalObjects: false });
    const server = createLimitedServer(this.#limits, (request, response) => {
      mountRequest(request, { base: this.#configuration.parameters["pg_http.base"], isForeign: false, login: null });
      void listener(request, response);
    });
    this.#connections.watch(server);
    server.listen(port, host === "" ? undefined : host);
    await once(server, "listening");
    this.#host = host;
    return server;
  }

  /** Only a random token is part of it: users have no other way to learn it. */
  #pageUrl(server: Server): string {
    const port = portOf(server);
    const name = ["", "0.0.0.0", "::"].includes(this.#host) ? "localhost" : this.#host;
    const host = name.includes(":") ? `[${name}]` : name;
    const token = this.#configuration.parameters["pg_http.token"];
    const fragment = token === "" && isLoopback(this.#host) ? `#token=${this.#randomToken}` : "";
    return `http://${host}:${port}/${fragment}`;
  }

  #createApp(): Hono {
    return createApp({
      ...this.#options,
      tables: this.#tables,
      metrics: this.#metrics,
      tokens: () => ({
        full: this.#configuration.parameters["pg_http.token"] || this.#randomToken,
        readOnly: this.#configuration.parameters["pg_http.readonly"] || null,
      }),
      proxyLogin: () => {
        const { "pg_http.user": header, "pg_http.proxies": proxies } = this.#configuration.parameters;
        const list = parseNetworks(proxies);
        return header === "" || list === null ? null : { header, proxies: list };
      },
      reach: (request) => ({
        listenHost: mountOf(request).isForeign ? "" : this.#host,
        hosts: parseHosts(this.#configuration.parameters["pg_http.hosts"]),
      }),
      limits: this.#limits,
      connections: this.#connections,
      maxSessions: this.#maxSessions,
      control: () => ({
        name: this.#configuration.parameters["pg_conf.name"],
        target: this.#configuration.control,
        pool: this.#controlPool,
      }),
    });
  }
}

function portOf(server: Server): number {
  const address = server.address();
  if (typeof address !== "object" || address === null) throw new TypeError("expected a server that listens on a port");
  return address.port;
}
