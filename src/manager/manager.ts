import { isDeepStrictEqual } from "node:util";
import { Backoff, pause } from "../shared/backoff.js";
import { refuseTo } from "../shared/config/serverSettings.js";
import type { Entry, Place } from "../shared/config/types.js";
import { disconnect, type Client } from "../shared/database.js";
import { PgTaskError, toReport } from "../shared/errors.js";
import { ConnectionWatch } from "../shared/connectionWatch.js";
import type { LifecycleHooks } from "../shared/lifecycle.js";
import type { Log } from "../shared/log.js";
import type {
  ExecutorParameters,
  FromManager,
  ManagerParameters,
  RunResult,
} from "../shared/messages.js";
import { Abroad } from "./abroad.js";
import { PartitionsWatch } from "./adoption/partitionsWatch.js";
import { Bell } from "./bell.js";
import { Cancellations } from "./cancellations.js";
import { Claiming } from "./claiming.js";
import { CutOff } from "./cutOff.js";
import {
  connectManager,
  isSuperuser,
  listen,
  setApplicationName,
  tryLock,
  unlock,
} from "./connection.js";
import { Executors } from "./executors.js";
import { Groups } from "./groups.js";
import { LargeResults } from "./largeResults.js";
import { Ledgers } from "./ledgers.js";
import { Lookout } from "./lookout.js";
import { Orphans } from "./orphans.js";
import { Outbox } from "./outbox.js";
import { Pauses } from "./pauses.js";
import { readPlace } from "./place.js";
import { Pruning } from "./pruning.js";
import { RemotePids } from "./remotePids.js";
import { Renewal } from "./renewal.js";
import { RunTimes } from "./runTimes.js";
import { ensureTable } from "./schema.js";
import { Service } from "./service.js";
import type { SessionEvents } from "./session.js";
import { Sessions } from "./sessions.js";
import { changedSettings, readSettings, type ManagerSettings } from "./settings.js";
import { Starts } from "./starts.js";
import { Statistics } from "./statistics.js";
import { taskTable, type TaskTable } from "./table.js";
import { Tracing } from "./tracing.js";
import { Turn } from "./turn.js";
import { dropUnproven } from "./unproven.js";
import { WakeUps } from "./wakeUps.js";
import { Workforce } from "./workforce.js";

/** How long results may gather while all sessions have enough to do, in ms, and how many. */
const gatherMs = 4;
const manyResults = 200;
/** After so long without a word its connection is looked after, in ms. */
const quietMs = 150;
/** How often another manager's lock is tried, in ms. */
const lockTryMs = 100;
/** How long sessions without anything to do stay for results that are not written yet, in ms. */
const resultsMs = 2_000;
/** How long results may fail to reach their rows when everything else has ended, in ms. */
const lastWritesMs = 5_000;

/**
 * The manager of one task table. It connects, makes the table, takes its lock and serves it; when
 * the connection goes, so does the lock: it starts nothing more until it has both again, while its
 * sessions finish what they run.
 */
export class Manager implements LifecycleHooks {
  /** With the parameters it was given last; the target stays the same. */
  #entry: Entry;
  readonly #takesOver: boolean;
  readonly #table: TaskTable;
  readonly #send: (message: FromManager) => void;
  readonly #log: Log;
  readonly #bell = new Bell();
  readonly #groups = new Groups();
  readonly #outbox = new Outbox();
  readonly #cancellations = new Cancellations();
  readonly #remotePids = new RemotePids();
  readonly #starts = new Starts();
  readonly #executors: Executors;
  readonly #sessions: Sessions;
  readonly #ledgers: Ledgers;
  readonly #orphans: Orphans;
  readonly #workforce: Workforce;
  readonly #turn: Turn;
  readonly #pruning: Pruning;
  readonly #statistics: Statistics;
  readonly #cutOff: CutOff;
  /** Null unless an OpenTelemetry SDK is loaded. */
  readonly #tracing: Tracing | null;
  /** Aborted when nothing runs any more and only results may be left to write. */
  readonly #ending = new AbortController();
  #settings: ManagerSettings | null = null;
  /** Whether the connection's user is one; who is not needs a password for each remote task. */
  #superuser = false;
  #service: Service | null = null;
  /** The table's, once it was made. */
  #oid: number | null = null;
  /** The connection of the service. */
  #client: Client | null = null;
  /** Aborted when the next try need not wait any longer. */
  #retry = new AbortController();
  #draining = false;
  readonly #runTimes = new RunTimes();
  readonly #large: LargeResults;
  /** Whether large outputs came of which it was not said yet that they are written. */
  #owing = false;
  /** Whether results gather for a turn. */
  #gathering = false;
  #work: Promise<void> = Promise.resolve();
  #whenChanged: (() => void)[] = [];
  /** Results left when one was last written, and when to give up unless there are fewer. */
  #lastWrites = { left: Infinity, until: 0 };
  readonly #backoff: Backoff;
  readonly #renewal: Renewal;

  constructor(
    { entry, takesOver }: ManagerParameters,
    options: {
      readonly send: (message: FromManager) => void;
      readonly writeLine: (line: string) => void;
      readonly log: Log;
    },
  ) {
    this.#entry = entry;
    this.#takesOver = takesOver;
    this.#table = taskTable(entry.schema, entry.table);
    this.#send = options.send;
    const log = options.log;
    this.#log = log;
    this.#backoff = new Backoff({ firstMs: 100, maxMs: longestPauseMs(entry), calmMs: 1_000 });
    this.#executors = new Executors({
      parameters: () => this.#executorParameters(),
      closeMs: () => this.#settings?.closeMs ?? this.#entry.parameters["pg_work.close"],
      events: {
        message: (thread, message) => {
          if (message.type === "results") this.#owing ||= isLarge(message.results);
          this.#sessions.receive(thread, message);
        },
        ended: (thread, reason) => this.#sessions.threadEnded(thread, reason),
      },
      log,
      writeLine: options.writeLine,
    });
    this.#sessions = new Sessions({
      executors: this.#executors,
      groups: this.#groups,
      runTimes: this.#runTimes,
      maxThreads: () => this.#entry.parameters["pg_conf.threads"],
      events: this.#sessionEvents(),
      log,
    });
    const pauses = new Pauses(this.#table);
    this.#ledgers = new Ledgers({ table: this.#table, log });
    const abroad = new Abroad({
      seek: (run) => this.#executors.seek(run),
      changed: () => this.#bell.ring(),
      resetMs: () => this.#settings?.resetMs ?? Infinity,
      log,
    });
    this.#orphans = new Orphans({ table: this.#table, groups: this.#groups, pauses, abroad, log });
    this.#workforce = new Workforce({
      sessions: this.#sessions,
      executors: this.#executors,
      runTimes: this.#runTimes,
      send: this.#send,
      longestPauseMs: () =>
        this.#settings?.restartMs ?? this.#entry.parameters["pg_work.restart"] * 1000,
      log,
    });
    this.#statistics = new Statistics({
      send: options.send,
      now: () => ({ running: this.#sessions.busy, sessions: this.#sessions.size }),
    });
    this.#pruning = new Pruning({ table: this.#table, log });
    this.#tracing = Tracing.begin(this.#table, entry.target, log);
    this.#large = new LargeResults({
      outbox: this.#outbox,
      connect: (signal) => connectManager(this.#entry, signal, "pg_work output"),
      watch: (client, after) =>
        new ConnectionWatch(client, entry.target, { name: "pg_work watch", quietMs: after }),
      written: () => {
        this.#tellWritten();
        this.#bell.ring();
      },
      log,
    });
    this.#turn = new Turn({
      table: this.#table,
      sessions: this.#sessions,
      groups: this.#groups,
      outbox: this.#outbox,
      remotePids: this.#remotePids,
      pauses,
      lookout: new Lookout({ table: this.#table, groups: this.#groups }),
      claiming: new Claiming({
        table: this.#table,
        sessions: this.#sessions,
        groups: this.#groups,
        outbox: this.#outbox,
        ledgers: this.#ledgers,
        runTimes: this.#runTimes,
        tracing: this.#tracing,
        log,
      }),
      starts: this.#starts,
      large: this.#large,
      tracing: this.#tracing,
      log,
    });
    this.#cutOff = new CutOff({
      table: this.#table,
      sessions: this.#sessions,
      excuse: (owner) => this.#orphans.excuse(owner),
      log,
    });
    this.#renewal = new Renewal({
      table: this.#table,
      entry: () => this.#entry,
      settled: (settings) => this.#goBy(settings),
      placed: (place) => this.#isPlace(place),
      answered: () => this.#send({ type: "reconfigured" }),
      signal: this.#ending.signal,
      log,
    });
  }

  grant(sessions: number, number: number): void {
    this.#workforce.grant(sessions, number);
    this.#letGo();
    this.#bell.ring();
  }

  /** Takes other parameters up, and what the server's settings are by now. */
  reconfigure({ entry }: Pick<ManagerParameters, "entry">): void {
    this.#entry = entry;
    this.#log.level = entry.parameters["pg_conf.log"];
    this.#backoff.limit(longestPauseMs(entry));
    this.#backoff.reset();
    this.#retry.abort();
    if (this.#service === null) this.#send({ type: "reconfigured" });
    else this.#renewal.start();
  }

  async start(): Promise<void> {
    // What the one before it left waits for no more than it has to: the thread starts meanwhile.
    if (this.#takesOver) this.#executors.start();
    this.#work = this.#serveForEver();
  }

  /** Starts nothing more, and waits for what runs. */
  async drain(signal: AbortSignal): Promise<void> {
    this.#draining = true;
    this.#service?.drain();
    await this.#until(() => this.#sessions.busy === 0, signal);
  }

  /** Cancels what still runs; its tasks return to PLAN. The connection is the last thing to go. */
  async stop(): Promise<void> {
    this.#draining = true;
    this.#service?.drain();
    if (this.#sessions.busy > 0) {
      this.#log.warn({ tasks: this.#sessions.busy }, "grace is over, running tasks are cancelled");
      this.#sessions.abort();
      await this.#until(() => this.#sessions.busy === 0, AbortSignal.timeout(lastWritesMs));
    }
    // With its session gone, a task whose result is not written would be taken for one that was cut off.
    await this.#until(() => this.#turn.written, AbortSignal.timeout(resultsMs));
    await this.#executors.end();
    this.#ending.abort();
    this.#bell.ring();
    await this.#work;
    this.#statistics.report();
    await this.#tracing?.end();
  }

  #sessionEvents(): SessionEvents {
    return {
      changed: (urgent) => {
        this.#tellChange();
        this.#letGo();
        this.#statistics.touch();
        this.#tellWritten();
        if (urgent || this.#outbox.size >= manyResults) this.#bell.ring();
        else if (!this.#gathering) {
          this.#gathering = true;
          setTimeout(() => this.#gathered(), gatherMs);
        }
      },
      result: (result, owner, { hash, max, pauses }) => {
        this.#outbox.add(result, owner, { hash, max }, pauses);
        this.#statistics.ended(result);
      },
      started: (task) => this.#starts.add(task),
      remote: (place) => this.#remotePids.add(place),
      lost: (task, owner, front) => {
        this.#groups.begin(task.hash);
        this.#tracing?.lost(task.id, front);
        this.#orphans.lost({ ...task, owner }, front);
      },
      silent: (owner, ms) => this.#cutOff.hear(owner, ms),
      opened: () => this.#workforce.succeeded(),
      unopened: (reason) => this.#workforce.refused(reason),
      cancel: (cancellation) => this.#cancellations.add(cancellation),
    };
  }

  /**
   * Gives up sessions beyond the grant: not before what came out of them is written when another manager
   * may have the table, which would take it for cut off.
   */
  #letGo(): void {
    if (!this.#draining || this.#turn.written) this.#workforce.letGo();
  }

  /** Executor threads have more large outputs handed over when those before are written. */
  #tellWritten(): void {
    if (!this.#owing || this.#outbox.large > 0) return;
    this.#owing = false;
    for (const thread of this.#executors.threads) this.#executors.tell(thread, { type: "written" });
  }

  #tellChange(): void {
    for (const each of this.#whenChanged.splice(0)) each();
  }

  #gathered(): void {
    this.#gathering = false;
    this.#bell.ring();
  }

  #executorParameters(): ExecutorParameters {
    return {
      target: this.#entry.target,
      schema: this.#entry.schema,
      table: this.#entry.table,
      finish: this.#table.qualifiedFinish,
      reset: this.#table.qualifiedReset,
      ledgers: [this.#table.qualifiedLedger1, this.#table.qualifiedLedger2],
      outputLimit: this.#settings?.outputLimit ?? this.#entry.parameters["pg_task.output"],
      logLevel: this.#log.level,
      superuser: this.#superuser,
      resetMs: this.#settings?.resetMs ?? 0,
    };
  }

  /** What the server's settings and the file's parameters come to, at the start or later. */
  #goBy(settings: ManagerSettings): void {
    const before = this.#settings;
    this.#settings = settings;
    this.#executors.reconfigure();
    if (this.#service === null || before === null) return;
    this.#service.reconfigure(settings);
    if (isDeepStrictEqual(before, settings)) return;
    this.#log.info(changedSettings(before, settings), "settings changed");
    if (this.#client !== null && before.sleepMs !== settings.sleepMs) {
      // Lost with the connection it names, if that is lost.
      setApplicationName(this.#client, this.#entry, settings.sleepMs).catch(() => {});
    }
  }

  /** Whether the tasks are in its table; if not, it is said that another manager has to have them. */
  #isPlace(place: Place): boolean {
    const { schema, table } = this.#table;
    if (place.schema === schema && place.table === table) return true;
    this.#send({ type: "moved", place });
    return false;
  }

  /** Resolves when `condition` holds, looked at when a session changes and after turns, or on abort. */
  async #until(condition: () => boolean, signal: AbortSignal): Promise<void> {
    const told = (): void => this.#tellChange();
    signal.addEventListener("abort", told, { once: true });
    while (!condition() && !signal.aborted) {
      await new Promise<void>((resolve) => this.#whenChanged.push(resolve));
    }
    signal.removeEventListener("abort", told);
  }

  /** Serves, and comes back after every failure with growing pauses, until it is told to end. */
  async #serveForEver(): Promise<void> {
    let said: string | null = null;
    while (!this.#ending.signal.aborted) {
      try {
        await this.#serve(() => {
          this.#backoff.reset();
          said = null;
        });
      } catch (error) {
        const reason = toReport(error);
        // One line for each change of state, not for each try.
        if (said !== reason.message) {
          said = reason.message;
          this.#log.warn({ code: reason.code, reason: reason.message }, "manager waits");
        }
        this.#send({ type: "waiting", reason });
        if (this.#finished()) return;
        this.#retry = new AbortController();
        const signal = AbortSignal.any([this.#ending.signal, this.#retry.signal]);
        await pause(this.#backoff.next(), signal);
      }
    }
  }

  async #serve(working: () => void): Promise<void> {
    const entry = this.#entry;
    const client = await connectManager(entry, this.#ending.signal);
    const over = new AbortController();
    let watch: ConnectionWatch | null = null;
    try {
      const lost = new Promise<never>((_, reject) => {
        client.once("end", () => {
          this.#bell.ring();
          reject(new PgTaskError("CONNECTION_LOST", "the manager's connection ended"));
        });
      });
      lost.catch(() => {});
      if (!this.#isPlace(await readPlace(client, entry, refuseTo(this.#log)))) {
        await this.#until(() => false, this.#ending.signal);
        return;
      }
      watch = new ConnectionWatch(client, entry.target, {
        name: "pg_work watch",
        quietMs,
        rests: () => this.#service?.asleep ?? true,
      });
      this.#superuser = await isSuperuser(client);
      const settings = await readSettings(client, entry, this.#log);
      this.#goBy(settings);
      this.#statistics.connected();
      await setApplicationName(client, entry, settings.sleepMs);
      // Who only writes what comes out makes nothing, and needs no lock: another may have the table.
      const made = this.#draining ? this.#oid : null;
      const oid = (this.#oid = made ?? (await ensureTable(client, this.#table, entry, this.#log)));
      const locked = await this.#lock(client, oid);
      await dropUnproven(client, this.#table, this.#sessions, this.#outbox);
      const service = new Service(client, settings, {
        bell: this.#bell,
        groups: this.#groups,
        sessions: this.#sessions,
        outbox: this.#outbox,
        orphans: this.#orphans,
        turn: this.#turn,
        workforce: this.#workforce,
        pruning: this.#pruning,
        ledgers: this.#ledgers,
        wakeUps: new WakeUps(client, oid),
        statistics: this.#statistics,
        runTimes: this.#runTimes,
      });
      client.on("notification", () => service.hear());
      await listen(client, this.#table);
      this.#service = service;
      this.#client = client;
      if (this.#draining) service.drain();
      // Reconfigured while it got this far.
      if (this.#entry !== entry) this.#renewal.start();
      this.#cancellations.attach(client, (done) => this.#sessions.cancelled(done));
      const began = (): void => {
        this.#log.info(
          { table: this.#table.qualified, sleepMs: settings.sleepMs },
          "manager works",
        );
        this.#send({ type: "ready" });
      };
      const partitions = new PartitionsWatch({
        table: this.#table,
        entry: () => this.#entry,
        everyMs: () => this.#settings?.resetMs ?? Infinity,
        found: () => this.#renewal.start(),
        log: this.#log,
      });
      const worked = (): void => {
        working();
        this.#tellWritten();
        this.#tellChange();
        this.#letGo();
        if (!this.#draining) partitions.look(client);
      };
      const released = async (): Promise<void> => {
        if (locked) await unlock(client, oid);
        this.#send({ type: "released" });
      };
      await Promise.race([
        service.run(() => this.#finished(), { began, worked, released }),
        this.#cutOff.watch(client, over.signal),
        lost,
      ]);
    } finally {
      over.abort();
      this.#service = null;
      this.#client = null;
      this.#cancellations.detach();
      this.#orphans.forgive();
      watch?.stop();
      await this.#large.stop();
      await disconnect(client);
    }
  }

  /** Waits for the table's lock until it is told to start nothing more; whether it has it. */
  async #lock(client: Client, oid: number): Promise<boolean> {
    for (let tries = 0; !this.#draining; tries += 1) {
      if (await tryLock(client, oid)) return true;
      if (tries === 0) {
        const message = "another manager has the table, waiting";
        this.#log.info({ table: this.#table.qualified }, message);
        this.#send({ type: "waiting", reason: { code: "LEADERSHIP_HELD", message } });
      }
      await pause(lockTryMs, this.#ending.signal);
    }
    return false;
  }

  /** Told to end, nothing runs, and what came out is written as far as it can be. */
  #finished(): boolean {
    if (!this.#ending.signal.aborted) return false;
    const left = this.#outbox.size;
    if (left === 0) return true;
    if (left < this.#lastWrites.left) {
      this.#lastWrites = { left, until: performance.now() + lastWritesMs };
    }
    if (performance.now() < this.#lastWrites.until) return false;
    this.#log.error({ tasks: left }, "results could not be written: these tasks run again");
    return true;
  }
}

const longestPauseMs = (entry: Entry): number => entry.parameters["pg_conf.restart"] * 1000;

const isLarge = ([first]: readonly RunResult[]): boolean =>
  first?.outcome === "ended" && first.large !== undefined;
