import { isDeepStrictEqual } from "node:util";
import { PgTaskError, toReport } from "../../shared/errors.js";
import type { ControlConnection, ExplainedConfiguration } from "../../shared/config/loadConfiguration.js";
import type { Configuration } from "../../shared/config/types.js";
import type { Log } from "../../shared/log.js";

/** What a new configuration is applied to: the supervisor, which passes it to its managers, and the web server. */
interface Reloadable {
  reload(configuration: Configuration): void;
}

/**
 * Reads the configuration again when the file changes or SIGHUP arrives, and passes the new configuration to the
 * target. An invalid configuration changes nothing.
 */
export class ConfigReloader {
  readonly #read: (inUse: ControlConnection) => Promise<ExplainedConfiguration>;
  readonly #canRead: boolean;
  readonly #fingerprint: () => Promise<string | null>;
  readonly #target: Reloadable;
  readonly #log: Log;
  /** Value of `pg_conf.name` at the start of the process. */
  readonly #initialName: string;
  #current: ExplainedConfiguration;
  /** The last problem that was logged, and the state of the file that has it. */
  #logged: { readonly fingerprint: string; readonly message: string } | null = null;
  /** The last reload. Each reload waits for the previous reload, so that reloads never overlap. */
  #pending: Promise<PgTaskError | null> = Promise.resolve(null);

  constructor(
    current: ExplainedConfiguration,
    options: {
      readonly read: (inUse: ControlConnection) => Promise<ExplainedConfiguration>;
      /** Whether there is anything to read: a file, or content that a program gives. */
      readonly canRead: boolean;
      /** Returns a text that changes with the file; null if there is no file. */
      readonly fingerprint: () => Promise<string | null>;
      readonly target: Reloadable;
      readonly log: Log;
    },
  ) {
    this.#current = current;
    this.#initialName = current.configuration.parameters["pg_conf.name"];
    this.#read = options.read;
    this.#canRead = options.canRead;
    this.#fingerprint = options.fingerprint;
    this.#target = options.target;
    this.#log = options.log;
  }

  onFileChanged(): void {
    void this.#enqueue({ requested: false });
  }

  /**
   * Reloads because of an explicit request, even if the configuration is unchanged. The settings of roles and databases
   * are also read again.
   *
   * @returns the error if the configuration cannot be read, and null otherwise
   */
  onReloadRequested(): Promise<PgTaskError | null> {
    return this.#enqueue({ requested: true });
  }

  #enqueue(reason: { readonly requested: boolean }): Promise<PgTaskError | null> {
    this.#pending = this.#pending.then(() => this.#reload(reason));
    return this.#pending;
  }

  async #reload({ requested }: { readonly requested: boolean }): Promise<PgTaskError | null> {
    const before = this.#current;
    if (!this.#canRead) {
      this.#log.info("no configuration file: only the server's settings are read again");
      this.#target.reload(before.configuration);
      return null;
    }
    const fingerprint = await this.#fingerprint();
    try {
      this.#current = await this.#read({
        given: before.controlGiven,
        control: before.configuration.control,
      });
    } catch (error) {
      const { code, message } = toReport(error);
      // After a change of the file, SIGHUP often arrives just before or after the change is noticed.
      const isLogged = fingerprint !== null && isDeepStrictEqual(this.#logged, { fingerprint, message });
      if (!isLogged) this.#log.error({ code, reason: message }, "configuration not reloaded, keeping the old one");
      this.#logged = fingerprint === null ? null : { fingerprint, message };
      return error instanceof PgTaskError ? error : new PgTaskError(code, message, { cause: error });
    }
    this.#logged = null;
    const { configuration, controlMoved } = this.#current;
    const isUnchanged = isDeepStrictEqual(before.configuration, configuration) && !controlMoved;
    if (!requested && isUnchanged) return null;
    this.#warnAboutIgnoredChanges(configuration, controlMoved);
    this.#target.reload(configuration);
    return null;
  }

  #warnAboutIgnoredChanges({ parameters }: Configuration, controlMoved: boolean): void {
    const isRenamed = parameters["pg_conf.name"] !== this.#initialName;
    const changed = [...(controlMoved ? ["url"] : []), ...(isRenamed ? ["pg_conf.name"] : [])];
    if (changed.length === 0) return;
    this.#log.warn({ changed }, "changed control connection or cluster name needs a restart");
  }
}
