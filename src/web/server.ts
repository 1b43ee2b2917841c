import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { getRequestListener } from "@hono/node-server";
import type { Hono } from "hono";
import { sleep } from "../shared/backoff.js";
import { isLoopback, listenAddresses, type ListenAddress } from "../shared/config/listenAddress.js";
import type { ClusterView } from "../shared/clusterStatus.js";
import type { Configuration } from "../shared/config/types.js";
import { Lifecycle, type LifecycleHooks } from "../shared/lifecycle.js";
import type { Log } from "../shared/log.js";
import { createApp } from "./app.js";
import { Metrics } from "./metrics/metrics.js";
import { WebTables } from "./data/webTables.js";
import { randomToken } from "./http/token.js";

/** How often an address that cannot be had is tried again, in ms. */
const againMs = 2_000;

/**
 * The page, the metrics and the health checks of this process. An address that cannot be had, since
 * the leader of the same machine has it or for another reason, is said once and tried again: tasks
 * run without a page as well.
 */
export class WebServer implements LifecycleHooks {
  readonly #log: Log;
  readonly #cluster: ClusterView;
  readonly #tables = new WebTables();
  readonly #metrics: Metrics;
  readonly #lifecycle: Lifecycle;
  readonly #ending = new AbortController();
  /** The one for when none is configured. */
  readonly #randomToken = randomToken();
  readonly #version: string;
  #configuration: Configuration;
  #app: Hono | null = null;
  #host = "";
  /** Ends the listening there is. */
  #attempt = new AbortController();
  #work: Promise<void> = Promise.resolve();

  constructor(
    configuration: Configuration,
    options: { readonly cluster: ClusterView; readonly log: Log; readonly version: string },
  ) {
    this.#configuration = configuration;
    this.#log = options.log;
    this.#cluster = options.cluster;
    this.#version = options.version;
    const mostSessions = (): number => this.#configuration.parameters["pg_conf.max"];
    this.#metrics = new Metrics({ cluster: this.#cluster, tables: this.#tables, mostSessions });
    this.#lifecycle = new Lifecycle(this, { name: "web", log: options.log });
    options.cluster.on("worked", (key) => this.#worked(key));
  }

  run(): Promise<void> {
    return this.#lifecycle.start();
  }

  /** Answers nobody any more; resolves when all its connections are gone. */
  end(): Promise<Error | null> {
    return this.#lifecycle.stop();
  }

  /** Goes by another configuration; with another address or token, streams that are open end. */
  reload(configuration: Configuration): void {
    const before = this.#configuration.parameters;
    const now = configuration.parameters;
    this.#configuration = configuration;
    this.#tables.use(configuration.entries);
    const same =
      before["pg_http.listen"] === now["pg_http.listen"] &&
      before["pg_http.token"] === now["pg_http.token"];
    if (!same) this.#listenAnew();
  }

  async start(): Promise<void> {
    this.#tables.use(this.#configuration.entries);
    this.#listenAnew();
  }

  async drain(): Promise<void> {}

  async stop(): Promise<void> {
    this.#ending.abort();
    this.#attempt.abort();
    await this.#work;
    this.#metrics.close();
    await this.#tables.close();
  }

  #worked(key: string): void {
    const view = this.#cluster.manager(key);
    const table = this.#tables.byKey(key);
    if (view === null || table === null) return;
    table.history.add(view);
    table.watch.touch();
  }

  #listenAnew(): void {
    this.#attempt.abort();
    this.#attempt = new AbortController();
    const { signal } = this.#attempt;
    const addresses = listenAddresses(this.#configuration.parameters["pg_http.listen"]);
    this.#work = this.#serve(addresses, signal, this.#work);
  }

  async #serve(
    addresses: readonly ListenAddress[],
    signal: AbortSignal,
    before: Promise<void>,
  ): Promise<void> {
    await before;
    if (addresses.length === 0 || this.#ending.signal.aborted) return;
    this.#app ??= this.#createApp();
    const server = await this.#bind(this.#app, addresses, signal);
    if (server === null) return;
    if (!signal.aborted) {
      this.#log.info({ url: this.#url(server) }, "page");
      await new Promise<void>((resolve) =>
        signal.addEventListener("abort", () => resolve(), { once: true }),
      );
    }
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
  }

  /** A server that listens; null when it was told to end before. */
  async #bind(
    app: Hono,
    addresses: readonly ListenAddress[],
    signal: AbortSignal,
  ): Promise<Server | null> {
    let said = false;
    while (!signal.aborted) {
      let failure: unknown;
      for (const address of addresses) {
        try {
          return await this.#listen(app, address);
        } catch (error) {
          failure = error;
        }
      }
      if (!said) {
        const reason = failure instanceof Error ? failure.message : String(failure);
        this.#log.warn({ reason }, "page waits for its address");
      }
      said = true;
      await sleep(againMs, signal);
    }
    return null;
  }

  async #listen(app: Hono, { host, port }: ListenAddress): Promise<Server> {
    const listener = getRequestListener(app.fetch, { overrideGlobalObjects: false });
    const server = createServer((request, response) => void listener(request, response));
    server.listen(port, host === "" ? undefined : host);
    await once(server, "listening");
    this.#host = host;
    return server;
  }

  /** With the token only where that is a random one, which nobody could know otherwise. */
  #url(server: Server): string {
    const address = server.address();
    const port = typeof address === "object" ? address?.port : null;
    const shown = ["", "0.0.0.0", "::"].includes(this.#host) ? "localhost" : this.#host;
    const host = shown.includes(":") ? `[${shown}]` : shown;
    const token = this.#configuration.parameters["pg_http.token"];
    const fragment = token === "" && isLoopback(this.#host) ? `#token=${this.#randomToken}` : "";
    return `http://${host}:${port}/${fragment}`;
  }

  #createApp(): Hono {
    return createApp({
      cluster: this.#cluster,
      tables: this.#tables,
      metrics: this.#metrics,
      version: this.#version,
      token: () => this.#configuration.parameters["pg_http.token"] || this.#randomToken,
      host: () => this.#host,
      mostSessions: () => this.#configuration.parameters["pg_conf.max"],
      log: this.#log,
    });
  }
}
