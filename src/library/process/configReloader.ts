import { isDeepStrictEqual } from "node:util";
import { PgTaskError, toReport } from "../../shared/errors.js";
import type { ControlConnection, ExplainedConfiguration } from "../../shared/config/loadConfiguration.js";
import type { Configuration } from "../../shared/config/types.js";
import type { Log } from "../../shared/log.js";

interface ReloadOptions {
  readonly read: (inUse: ControlConnection) => Promise<ExplainedConfiguration>;
  readonly canRead: boolean;
  /** Returns a text that changes with the file; null if there is no file. */
  readonly fingerprint: () => Promise<string | null>;
  readonly apply: (configuration: Configuration) => void;
  readonly log: Log;
}

/** An invalid configuration changes nothing. */
export class ConfigReloader {
  readonly #options: ReloadOptions;
  readonly #initialName: string;
  #current: ExplainedConfiguration;
  /** The last problem that was logged, and the state of the file that has it. */
  #logged: { readonly fingerprint: string; readonly message: string } | null = null;
  /** Each reload waits for the one before, so that they never overlap. */
  #pending: Promise<PgTaskError | null> = Promise.resolve(null);

  constructor(current: ExplainedConfiguration, options: ReloadOptions) {
    this.#current = current;
    this.#initialName = current.configuration.parameters["pg_conf.name"];
    this.#options = options;
  }

  onFileChanged(): void {
    void this.#enqueue({ requested: false });
  }

  /** Applies the configuration even if it is unchanged, so that the settings of roles and databases are read again. */
  onReloadRequested(): Promise<PgTaskError | null> {
    return this.#enqueue({ requested: true });
  }

  #enqueue(reason: { readonly requested: boolean }): Promise<PgTaskError | null> {
    this.#pending = this.#pending.then(() => this.#reload(reason));
    return this.#pending;
  }

  async #reload({ requested }: { readonly requested: boolean }): Promise<PgTaskError | null> {
    const before = this.#current;
    if (!this.#options.canRead) {
      this.#options.log.info("no configuration file: only the server's settings are read again");
      this.#options.apply(before.configuration);
      return null;
    }
    const fingerprint = await this.#options.fingerprint();
    try {
      this.#current = await this.#options.read({
        given: before.controlGiven,
        control: before.configuration.control,
      });
    } catch (error) {
      const { code, message } = toReport(error);
      // After a change of the file, SIGHUP often arrives just before or after the change is noticed.
      const isLogged = fingerprint !== null && isDeepStrictEqual(this.#logged, { fingerprint, message });
      if (!isLogged)
        this.#options.log.error({ code, reason: message }, "configuration not reloaded, keeping the old one");
      this.#logged = fingerprint === null ? null : { fingerprint, message };
      return error instanceof PgTaskError ? error : new PgTaskError(code, message, { cause: error });
    }
    this.#logged = null;
    const { configuration, controlMoved } = this.#current;
    const isUnchanged = isDeepStrictEqual(before.configuration, configuration) && !controlMoved;
    if (!requested && isUnchanged) return null;
    this.#warnAboutIgnoredChanges(configuration, controlMoved);
    this.#options.apply(configuration);
    return null;
  }

  #warnAboutIgnoredChanges({ parameters }: Configuration, controlMoved: boolean): void {
    const isRenamed = parameters["pg_conf.name"] !== this.#initialName;
    const changed = [...(controlMoved ? ["url"] : []), ...(isRenamed ? ["pg_conf.name"] : [])];
    if (changed.length === 0) return;
    this.#options.log.warn({ changed }, "changed control connection or cluster name needs a restart");
  }
}
