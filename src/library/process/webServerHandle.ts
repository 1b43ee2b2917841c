import type { Configuration } from "../../shared/config/types.js";
import type { WebServer, WebServerOptions } from "../../web/server.js";

/**
 * The server's code is loaded only if `pg_http.listen` is set, because it takes longer to load than everything else
 * that `start` needs.
 */
export class WebServerHandle {
  readonly #options: WebServerOptions;
  #server: Promise<WebServer> | null = null;

  constructor(options: WebServerOptions) {
    this.#options = options;
  }

  /** If the configuration needs a web server, resolves when that server is collecting the cluster's statistics. */
  async configure(configuration: Configuration): Promise<void> {
    if (this.#server !== null) (await this.#server).reload(configuration);
    else if (configuration.parameters["pg_http.listen"] !== "") {
      await (this.#server = this.#start(configuration));
    }
  }

  /** Resolves with the page's URL; null if there is no page, or if it cannot be served yet. */
  async pageUrl(): Promise<string | null> {
    return (await (await this.#server)?.firstAddress) ?? null;
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
