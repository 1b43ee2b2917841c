import type { ClusterView } from "../../shared/clusterStatus.js";
import type { Configuration } from "../../shared/config/types.js";
import type { Log } from "../../shared/log.js";
import type { WebServer } from "../../web/server.js";

/**
 * The page, whose code is loaded only where one is configured: that takes longer than all else that a
 * start has to load.
 */
export class Page {
  readonly #options: {
    readonly cluster: ClusterView;
    readonly log: Log;
    readonly version: string;
  };
  #web: Promise<WebServer> | null = null;

  constructor(options: {
    readonly cluster: ClusterView;
    readonly log: Log;
    readonly version: string;
  }) {
    this.#options = options;
  }

  /** Goes by this configuration from now on; resolves when it counts what the cluster does, if it has to. */
  async use(configuration: Configuration): Promise<void> {
    if (this.#web !== null) (await this.#web).reload(configuration);
    else if (configuration.parameters["pg_http.listen"] !== "") {
      await (this.#web = this.#run(configuration));
    }
  }

  async end(): Promise<void> {
    await (await this.#web)?.end();
  }

  async #run(configuration: Configuration): Promise<WebServer> {
    const { WebServer } = await import("../../web/server.js");
    const web = new WebServer(configuration, this.#options);
    void web.run().catch(() => {});
    return web;
  }
}
