import { EventEmitter } from "eventemitter3";
import type { EmbeddedServer } from "../../embedded/embeddedServer.js";
import { serverUrlWithoutTls } from "../../embedded/port.js";
import { findSource, type SourceOptions } from "../../shared/config/findSource.js";
import type { ControlConnection, ExplainedConfiguration, LoadOptions } from "../../shared/config/loadConfiguration.js";
import type { Configuration, Entry } from "../../shared/config/types.js";
import { fromReport, PgTaskError, toReport } from "../../shared/errors.js";
import { describeTarget } from "../../shared/postgres/target/target.js";
import { packageVersion } from "../../shared/version.js";
import { Supervisor } from "../../supervisor/supervisor.js";
import type { Config, ConfigEntry } from "../config.js";
import type { WebHandlerOptions } from "../options.js";
import { checkOptions, stopChecks, webHandlerChecks } from "../optionChecks.js";
import type { EntryStatus, PgTask, PgTaskEvents } from "../pgTask.js";
import { ConfigReloader } from "./configReloader.js";
import { readFingerprint, watchFile } from "./fileWatcher.js";
import type { OpenLog } from "./openLog.js";
import { ProcessSignals } from "./processSignals.js";
import { WebServerHandle } from "./webServerHandle.js";

export interface Launched {
  readonly explained: ExplainedConfiguration;
  readonly embedded: EmbeddedServer | null;
  readonly web: WebServerHandle;
}

export interface ServiceOptions {
  readonly source: SourceOptions;
  readonly read: (options: LoadOptions) => Promise<ExplainedConfiguration>;
  /** The embedded server to start; null to use the configured one. */
  readonly embedded: { readonly dataDirectory: () => string; readonly port?: number | undefined } | null;
  readonly openLog: (level: string) => OpenLog | Promise<OpenLog>;
  readonly handlesSignals: boolean;
  readonly defaults?: LoadOptions["defaults"];
  readonly noServerRemedy: string;
}

/** Stands in for the embedded server's URL during the validation of the configuration, after which it starts. */
const placeholderUrl = serverUrlWithoutTls(5432);

/**
 * Everything that runs in a pg-task process: the supervisor, the web server, the embedded server, and what reloads the
 * configuration. The command `start` and the library's `start` both run one.
 *
 *     run ──▶ reading the configuration ──▶ starting the embedded server ──▶ supervising ──▶ ended
 *
 * A stop that is requested before the supervisor exists takes effect as soon as it does.
 */
export class Service extends EventEmitter<PgTaskEvents> implements PgTask {
  readonly stopped: Promise<PgTaskError | null>;
  readonly #options: ServiceOptions;
  #end: (error: PgTaskError | null) => void = () => {};
  #supervisor: Supervisor | null = null;
  #launched: Launched | null = null;
  #reloader: ConfigReloader | null = null;
  #configuration: Configuration | null = null;
  #content: unknown;
  #stopRequest: { readonly graceMs: number | undefined } | null = null;
  #unreachable: PgTaskError | null = null;
  #lastRole: PgTask["role"] = "seeking";
  #hasEnded = false;
  /** For each entry, what has last been reported of its state, as text. */
  readonly #reported = new Map<string, string>();

  constructor(options: ServiceOptions) {
    super();
    this.#options = options;
    this.#content = options.source.content;
    this.stopped = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  get role(): PgTask["role"] {
    if (this.#hasEnded) return "stopped";
    return this.#supervisor?.board.role ?? (this.#stopRequest === null ? "seeking" : "stopping");
  }

  get launched(): Launched | null {
    return this.#launched;
  }

  /** The configuration in force; null before the supervisor starts. */
  get configuration(): Configuration | null {
    return this.#configuration;
  }

  get url(): string {
    return this.#configuration === null ? "" : describeTarget(this.#configuration.control);
  }

  get entries(): readonly EntryStatus[] {
    return (this.#configuration?.entries ?? []).map((entry) => this.#statusOf(entry));
  }

  /** Never rejects: `stopped` resolves with the error. */
  async run(): Promise<void> {
    let failure: PgTaskError | null = null;
    try {
      await this.#live();
    } catch (error) {
      failure = error instanceof PgTaskError ? error : fromReport(toReport(error));
    }
    this.#hasEnded = true;
    this.#reportChanges();
    this.#announce("stopped", failure);
    this.#end(failure);
  }

  /** The error of a start that was stopped before it was ready. */
  abortedError(): PgTaskError {
    const why = this.#unreachable === null ? "" : `: ${this.#unreachable.message}`;
    return new PgTaskError("START_ABORTED", `pg-task was stopped before it was ready${why}`, {
      cause: this.#unreachable ?? undefined,
    });
  }

  async reload(config?: Config | readonly ConfigEntry[]): Promise<void> {
    if (this.#reloader === null) {
      throw new PgTaskError("USAGE", "expected a running pg-task to reload, got one that is starting or has ended");
    }
    const before = this.#content;
    if (config !== undefined) {
      if (before === undefined) {
        throw new PgTaskError(
          "CONFIG_CONFLICT",
          "expected reload without a configuration, because pg-task was started with a file or the environment",
        );
      }
      this.#content = config;
    }
    const error = await this.#reloader.onReloadRequested();
    if (error === null) return;
    this.#content = before;
    throw error;
  }

  async stop(options: { readonly graceMs?: number | undefined } = {}): Promise<void> {
    checkOptions(options, stopChecks, "an option of stop");
    const { graceMs } = options;
    this.#stopRequest = { graceMs };
    void this.#supervisor?.end(graceMs);
    await this.stopped;
  }

  webHandler(options: WebHandlerOptions = {}): ReturnType<PgTask["webHandler"]> {
    checkOptions(options, webHandlerChecks, "an option of webHandler");
    return (request, response) => {
      if (this.#launched === null || this.#hasEnded) response.writeHead(503).end("pg-task is not running\n");
      else void this.#launched.web.handle(request, response, options);
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** The listeners refer to this object, so that JSON could not represent it as it is. */
  toJSON(): ReturnType<PgTask["toJSON"]> {
    return { role: this.role, url: this.url, entries: this.entries };
  }

  async #live(): Promise<void> {
    const { source, embedded } = this.#options;
    const { file, environment } = await findSource(source);
    const fingerprint = file === null ? "" : await readFingerprint(file);
    const initial = await this.#read(file, embedded === null ? undefined : placeholderUrl);
    const { parameters } = initial.configuration;
    const output = await this.#options.openLog(parameters["pg_conf.log"]);
    const signals = this.#options.handlesSignals ? new ProcessSignals(output.log) : null;
    if (initial.controlFrom === "libpq's defaults") {
      output.log.warn(
        { server: describeTarget(initial.configuration.control), remedy: this.#options.noServerRemedy },
        "no server configured, using libpq's default",
      );
    }
    if (embedded !== null && environment !== null) {
      output.log.warn({ ignored: environment }, "embedded server used instead of the one in the environment");
    }
    let server: EmbeddedServer | null = null;
    try {
      if (this.#isStopRequested()) return;
      if (embedded !== null) server = await this.#startEmbedded(embedded, output);
      const explained = server === null ? initial : await this.#read(file, serverUrlWithoutTls(server.port));
      if (this.#isStopRequested()) return;
      await this.#supervise(explained, { output, signals, server, file, fingerprint });
    } finally {
      await server?.stop();
      signals?.close();
    }
  }

  async #startEmbedded(
    { dataDirectory, port }: NonNullable<ServiceOptions["embedded"]>,
    { log }: OpenLog,
  ): Promise<EmbeddedServer> {
    const { startEmbedded } = await import("../../embedded/embeddedServer.js");
    return await startEmbedded({ dataDirectory: dataDirectory(), log, ...(port === undefined ? {} : { port }) });
  }

  async #supervise(
    explained: ExplainedConfiguration,
    context: {
      readonly output: OpenLog;
      readonly signals: ProcessSignals | null;
      readonly server: EmbeddedServer | null;
      readonly file: string | null;
      /** That of the file before it was read. */
      readonly fingerprint: string;
    },
  ): Promise<void> {
    const { output, signals, server, file, fingerprint } = context;
    const { log } = output;
    this.#configuration = explained.configuration;
    const supervisor = new Supervisor(explained.configuration, output);
    this.#supervisor = supervisor;
    const version = packageVersion();
    const web = new WebServerHandle({ cluster: supervisor.board, ports: supervisor.ports, log, version });
    await web.configure(explained.configuration);
    this.#launched = { explained, embedded: server, web };
    let failure: Error | null = null;
    void server?.ended.then((how) => {
      failure = new PgTaskError("EMBEDDED_FAILED", `the embedded server ended: ${how}`);
      return supervisor.end(0);
    });
    this.#forwardEvents(supervisor);
    void supervisor.run().catch(() => {});
    if (this.#stopRequest !== null) void supervisor.end(this.#stopRequest.graceMs);
    const url = server === null ? undefined : serverUrlWithoutTls(server.port);
    const reloader = new ConfigReloader(explained, {
      read: async (inUse) => await this.#read(file, url, { inUse, warn: (message) => log.warn(message) }),
      canRead: file !== null || this.#content !== undefined,
      fingerprint: async () => (file === null ? null : await readFingerprint(file)),
      apply: (configuration) => {
        this.#configuration = configuration;
        supervisor.reload(configuration);
        void web.configure(configuration);
        this.#announce("reloaded");
      },
      log,
    });
    this.#reloader = reloader;
    signals?.forwardTo({
      stop: (graceMs) => void supervisor.end(graceMs),
      reload: () => void reloader.onReloadRequested(),
    });
    const ended = new AbortController();
    if (file !== null) void watchFile(file, fingerprint, () => reloader.onFileChanged(), ended.signal);
    const reason = (await supervisor.stopped) ?? failure;
    this.#reloader = null;
    ended.abort();
    await web.end();
    if (reason !== null) throw reason;
    log.info("stopped");
  }

  /** @param file found at the start: if it no longer exists, a reload fails, and no other source takes its place */
  async #read(
    file: string | null,
    control: string | undefined,
    reload: { readonly inUse?: ControlConnection; readonly warn?: (message: string) => void } = {},
  ): Promise<ExplainedConfiguration> {
    const { source, read, defaults } = this.#options;
    return await read({
      ...source,
      content: this.#content,
      ...(file === null ? {} : { file }),
      ...(control === undefined ? {} : { control }),
      defaults,
      ...reload,
    });
  }

  #forwardEvents(supervisor: Supervisor): void {
    supervisor.on("ready", () => this.#announce("ready"));
    supervisor.on("unreachable", (reason) => {
      this.#unreachable = fromReport(reason);
      this.#announce("unreachable", this.#unreachable);
    });
    supervisor.board.on("changed", (key) => this.#reportChanges(key));
    supervisor.board.on("worked", (key) => {
      const entry = this.#configuration?.entries.find((each) => each.key === key);
      if (entry !== undefined) this.#announce("worked", this.#statusOf(entry));
    });
  }

  /**
   * An error that a listener throws must not interrupt pg-task, and must not be hidden either: it becomes an uncaught
   * exception, as for Node's own event targets.
   */
  #announce<E extends keyof PgTaskEvents>(
    event: E,
    ...values: Parameters<EventEmitter.EventListener<PgTaskEvents, E>>
  ): void {
    try {
      this.emit(event, ...values);
    } catch (error) {
      queueMicrotask(() => {
        throw error;
      });
    }
  }

  #isStopRequested(): boolean {
    return this.#stopRequest !== null;
  }

  /** @param changed key of the only entry that may have changed. A thousand entries change one after another. */
  #reportChanges(changed?: string): void {
    const { role } = this;
    if (role !== this.#lastRole) {
      this.#lastRole = role;
      this.#announce("role", role);
    }
    for (const configured of this.#configuration?.entries ?? []) {
      if (changed !== undefined && configured.key !== changed) continue;
      const entry = this.#statusOf(configured);
      const { key, state, reason, stalled } = entry;
      const text = JSON.stringify([state, reason, stalled]);
      if (text === (this.#reported.get(key) ?? noManager)) continue;
      this.#reported.set(key, text);
      this.#announce("entry", entry);
    }
  }

  #statusOf({ key, target, schema, table }: Entry): EntryStatus {
    const view = this.#supervisor?.board.manager(key) ?? null;
    const entry = { key, database: target.database, schema, table };
    if (view === null) return { ...entry, ...noManagerStatus };
    const { state, reason, stalled, running, sessions, counts } = view;
    const { code = null, message = null } = reason ?? {};
    return { ...entry, state, reason: message, code, stalled, running, sessions, counts };
  }
}

const noManagerStatus = {
  state: "none",
  reason: null,
  code: null,
  stalled: null,
  running: 0,
  sessions: 0,
  counts: null,
} as const;

const noManager = JSON.stringify(["none", null, null]);
