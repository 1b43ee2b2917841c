import type { Configuration } from "../../shared/config/types.js";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { WebHandlerOptions, WebServer, WebServerOptions } from "../../web/server.js";

/** The web server's code takes longer to load than all else of `start`, so it is loaded only if it is needed. */
export class WebServerHandle {
  readonly #options: WebServerOptions;
  #server: Promise<WebServer> | null = null;
  #configuration: Configuration | null = null;

  constructor(options: WebServerOptions) {
    this.#options = options;
  }

  /** Resolves when a web server that the configuration needs is collecting the cluster's statistics. */
  async configure(configuration: Configuration): Promise<void> {
    this.#configuration = configuration;
    if (this.#server !== null) (await this.#server).reload(configuration);
    else if (configuration.parameters["pg_http.listen"] !== "") {
      await (this.#server = this.#start(configuration));
    }
  }

  /** Resolves with the page's URL; null if there is no page, or if it cannot be served yet. */
  async pageUrl(): Promise<string | null> {
    return (await (await this.#server)?.firstAddress) ?? null;
  }

  /** Answers a request that a server of the program has received. Never rejects. */
  async handle(request: IncomingMessage, response: ServerResponse, options: WebHandlerOptions): Promise<void> {
    try {
      if (this.#configuration === null) throw new Error("expected a configuration");
      this.#server ??= this.#start(this.#configuration);
      await (await this.#server).handle(request, response, options);
    } catch (error) {
      this.#options.log.error({ err: error, path: request.url }, "request failed");
      if (!response.headersSent) response.writeHead(500);
      response.end();
    }
  }

  async end(): Promise<void> {
    await (await this.#server)?.end();
  }

  async #start(configuration: Configuration): Promise<WebServer> {
    const { WebServer } = await import("../../web/server.js");
    const server = new WebServer(configuration, this.#options);
    void server.run().catch(() => {});
    return server;
  }
}
