import { once } from "node:events";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { isDeepStrictEqual } from "node:util";
import { getRequestListener } from "@hono/node-server";
import type { Hono } from "hono";
import { isLoopback, parseHosts, parseNetworks, type ListenAddress } from "../shared/config/listenAddress.js";
import type { ClusterView } from "../shared/clusterStatus.js";
import type { Configuration } from "../shared/config/types.js";
import { Lifecycle, type LifecycleHooks } from "../shared/lifecycle.js";
import type { Log } from "../shared/log.js";
import type { SharedPorts } from "../shared/sharedPorts.js";
import { createApp } from "./app.js";
import { Metrics } from "./metrics/metrics.js";
import { ConnectionPool } from "./data/connectionPool.js";
import { WebTables } from "./data/webTables.js";
import { ConnectionLimit } from "./http/connectionLimit.js";
import { createLimitedServer, httpLimits, type HttpLimits } from "./http/limits.js";
import { mountOf, mountRequest, type Login } from "./http/mount.js";
import { rareReport } from "./http/rareReport.js";
import { portOf, SharedAddress } from "./http/sharedAddress.js";
import { randomToken } from "./http/token.js";

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

/** Serves the page, the API, metrics and health checks of this process. Tasks run even if it cannot listen. */
export class WebServer implements LifecycleHooks {
  readonly #options: WebServerOptions;
  readonly #tables: WebTables;
  readonly #metrics: Metrics;
  readonly #lifecycle: Lifecycle;
  readonly #randomToken = randomToken();
  readonly #limits: HttpLimits;
  readonly #connections: ConnectionLimit;
  #configuration: Configuration;
  #controlPool: ConnectionPool;
  readonly #oldPools: Promise<void>[] = [];
  #app: Hono | null = null;
  #host = "";
  readonly #address: SharedAddress;

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
    this.#address = new SharedAddress({
      cluster,
      ports,
      log,
      listen: () => this.#configuration.parameters["pg_http.listen"],
      open: async (address) => await this.#listen(address),
      pageUrl: (server) => this.#pageUrl(server),
    });
    cluster.on("worked", (key) => this.#recordStatistics(key));
    cluster.on("released", () => this.#tables.setEntries(this.#configuration));
  }

  /** Resolves with the page's URL when the server listens, or with null when its first attempt has failed. */
  get firstAddress(): Promise<string | null> {
    return this.#address.first;
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
    if (!isSame) this.#address.restart();
  }

  async start(): Promise<void> {
    this.#tables.setEntries(this.#configuration);
    this.#address.start();
  }

  async drain(): Promise<void> {}

  async stop(): Promise<void> {
    await this.#address.stop();
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

  async #listen({ host, port }: ListenAddress): Promise<Server> {
    this.#app ??= this.#createApp();
    const listener = getRequestListener(this.#app.fetch, { overrideGlobalObjects: false });
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
