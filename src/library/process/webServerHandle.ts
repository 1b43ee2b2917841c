import type { Configuration } from "../../shared/config/types.js";
import type { WebServer, WebServerOptions } from "../../web/server.js";

/** The web server's code takes longer to load than all else of `start`, so it is loaded only for `pg_http.listen`. */
export class WebServerHandle {
  readonly #options: WebServerOptions;
  #server: Promise<WebServer> | null = null;

  constructor(options: WebServerOptions) {
    this.#options = options;
  }

  /** Resolves when a web server that the configuration needs is collecting the cluster's statistics. */
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
