import { isDeepStrictEqual } from "node:util";
import { toReport } from "../../shared/errors.js";
import type {
  ControlConnection,
  ExplainedConfiguration,
} from "../../shared/config/loadConfiguration.js";
import type { Configuration } from "../../shared/config/types.js";
import type { Log } from "../../shared/log.js";

/** What goes by a configuration. */
interface Reloadable {
  reload(configuration: Configuration): void;
}

/**
 * Reads the configuration again when the file changed or SIGHUP asks for it, and passes it on; one
 * that is not valid changes nothing.
 */
export class Reloading {
  readonly #read: (inUse: ControlConnection) => Promise<ExplainedConfiguration>;
  readonly #to: Reloadable;
  readonly #log: Log;
  /** Of the cluster, since the start. */
  readonly #name: string;
  #current: ExplainedConfiguration;
  /** One at a time. */
  #work: Promise<void> = Promise.resolve();

  constructor(
    current: ExplainedConfiguration,
    options: {
      readonly read: (inUse: ControlConnection) => Promise<ExplainedConfiguration>;
      readonly to: Reloadable;
      readonly log: Log;
    },
  ) {
    this.#current = current;
    this.#name = current.configuration.parameters["pg_conf.name"];
    this.#read = options.read;
    this.#to = options.to;
    this.#log = options.log;
  }

  /** The file is another one. */
  fileChanged(): void {
    this.#work = this.#work.then(() => this.#reload({ asked: false }));
  }

  /** Somebody wants it: also what the file does not say, such as settings of databases, is read again. */
  asked(): void {
    this.#work = this.#work.then(() => this.#reload({ asked: true }));
  }

  async #reload({ asked }: { readonly asked: boolean }): Promise<void> {
    const before = this.#current;
    if (before.configuration.file === null) {
      this.#log.info("no configuration file: only the server's settings are read again");
      this.#to.reload(before.configuration);
      return;
    }
    try {
      this.#current = await this.#read({
        parts: before.controlParts,
        control: before.configuration.control,
      });
    } catch (error) {
      const { code, message } = toReport(error);
      this.#log.error(
        { code, reason: message },
        "configuration not reloaded, the one before stays in force",
      );
      return;
    }
    const { configuration, controlMoved } = this.#current;
    if (!asked && isDeepStrictEqual(before.configuration, configuration) && !controlMoved) return;
    this.#sayLater(configuration, controlMoved);
    this.#to.reload(configuration);
  }

  #sayLater({ parameters }: Configuration, controlMoved: boolean): void {
    const renamed = parameters["pg_conf.name"] !== this.#name;
    const changed = [...(controlMoved ? ["url"] : []), ...(renamed ? ["pg_conf.name"] : [])];
    if (changed.length === 0) return;
    this.#log.warn(
      { changed },
      "the control connection's place and the cluster's name stay as they were until the next start",
    );
  }
}
