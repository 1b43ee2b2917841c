import { isDeepStrictEqual } from "node:util";
import { Backoff, sleep } from "../shared/backoff.js";
import { refuseTo } from "../shared/config/serverSettings.js";
import type { Entry, TableLocation } from "../shared/config/types.js";
import { connectionLost, disconnect, type Client } from "../shared/postgres/client.js";
import { isLoss, toReport } from "../shared/errors.js";
import { ConnectionWatchdog } from "../shared/postgres/connectionWatchdog.js";
import type { LifecycleHooks } from "../shared/lifecycle.js";
import type { Log } from "../shared/log.js";
import type { FromManager, ManagerParameters } from "../shared/ipc/messages.js";
import { PartitionWatcher } from "./upkeep/partitionWatcher.js";
import { Condition } from "../shared/condition.js";
import {
  connectManager,
  isSuperuser,
  listen,
  setApplicationName,
  tryLock,
  unlock,
} from "./connection.js";
import { FinalWriteDeadline } from "./results/finalWriteDeadline.js";
import { missingPrivilege } from "./schema/missingPrivilege.js";
import { createComponents, type ManagerComponents } from "./components.js";
import { locateTable } from "./schema/locateTable.js";
import { SettingsReloader } from "./loop/settingsReloader.js";
import { ensureTable } from "./schema/ensureTable.js";
import { ManagerLoop } from "./loop/managerLoop.js";
import { changedSettings, readSettings, type ManagerSettings } from "./settings.js";
import { taskTable, type TaskTable } from "./schema/taskTable.js";
import { discardUnconfirmed } from "./recovery/discardUnconfirmed.js";
import { WakeUps } from "./loop/wakeUps.js";

/** How long results may gather while all sessions have enough to do, in ms, and how many. */
const gatherMs = 4;
const manyResults = 200;
/** After so long without a word its connection is looked after, in ms. */
const quietMs = 150;
/** How often another manager's lock is tried, in ms. */
const lockTryMs = 100;
/**
 * How long it may take beyond the grace, in ms, which is less than the supervisor waits: until runs that
 * were cancelled have come back, until sessions without anything to do end though results are not written
 * yet, and until those are given up.
 */
const beyondGraceMs = { cancelled: 1_500, sessions: 2_000, results: 3_000 };

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
  readonly #threadLog: Log;
  readonly #parts: ManagerComponents;
  readonly #changes = new Condition();
  readonly #lastWrites = new FinalWriteDeadline();
  /** Aborted when nothing runs any more and only results may be left to write. */
  readonly #ending = new AbortController();
  /** When the grace of a stop is over, on the process's clock. */
  #graceUntil = 0;
  #settings: ManagerSettings | null = null;
  /** Whether the connection's user is one; who is not needs a password for each remote task. */
  #superuser = false;
  #service: ManagerLoop | null = null;
  /** The table's, once it was made. */
  #oid: number | null = null;
  /** The connection of the service. */
  #client: Client | null = null;
  /** Aborted when the next try need not wait, also while the one before it is still under way. */
  #retry = new AbortController();
  #draining = false;
  #work: Promise<void> = Promise.resolve();
  readonly #backoff: Backoff;
  readonly #renewal: SettingsReloader;

  constructor(
    { entry, takesOver }: ManagerParameters,
    options: {
      readonly send: (message: FromManager) => void;
      readonly log: Log;
      /** The executor threads'. */
      readonly threadLog: Log;
    },
  ) {
    this.#entry = entry;
    this.#takesOver = takesOver;
    this.#table = taskTable(entry.schema, entry.table);
    this.#send = options.send;
    const log = options.log;
    this.#log = log;
    this.#threadLog = options.threadLog;
    this.#backoff = new Backoff({ firstMs: 100, maxMs: longestPauseMs(entry), calmMs: 1_000 });
    this.#parts = createComponents({
      table: this.#table,
      entry: () => this.#entry,
      settings: () => this.#settings,
      superuser: () => this.#superuser,
      send: options.send,
      changed: (urgent) => this.#changed(urgent),
      // At the next connection it is looked for in any case.
      lacking: () => {
        if (this.#service !== null) this.#renewal.mend();
      },
      log,
      threadLog: options.threadLog,
    });
    this.#renewal = new SettingsReloader({
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
    this.#parts.workforce.grant(sessions, number);
    this.#letGo();
    this.#parts.bell.notify();
  }

  /** Takes other parameters up, and what the server's settings are by now. */
  reconfigure({ entry }: Pick<ManagerParameters, "entry">): void {
    this.#entry = entry;
    const level = entry.parameters["pg_conf.log"];
    this.#log.level = level;
    this.#threadLog.level = level;
    this.#backoff.limit(longestPauseMs(entry));
    this.#backoff.reset();
    this.#retry.abort();
    if (this.#service === null) this.#send({ type: "reconfigured" });
    else this.#renewal.start();
  }

  /** Its server has just let somebody in: the pause before the next try is over. */
  retry(): void {
    this.#retry.abort();
  }

  async start(): Promise<void> {
    // What the one before it left waits for no more than it has to: the thread starts meanwhile.
    if (this.#takesOver) this.#parts.executors.start();
    this.#work = this.#serveForEver();
  }

  /** Starts nothing more, and waits for what runs. */
  async drain(signal: AbortSignal, graceMs: number): Promise<void> {
    if (graceMs < Infinity) this.#graceUntil = performance.now() + graceMs;
    this.#beginDraining();
    await this.#changes.until(() => this.#parts.sessions.busy === 0, signal);
  }

  /** Cancels what still runs; its tasks return to PLAN. The connection is the last thing to go. */
  async stop(): Promise<void> {
    const { bell, executors, sessions, statistics, tracing, turn } = this.#parts;
    this.#beginDraining();
    this.#graceUntil = Math.max(this.#graceUntil, performance.now());
    const until = (beyondMs: number): AbortSignal =>
      AbortSignal.timeout(Math.max(0, Math.ceil(this.#graceUntil + beyondMs - performance.now())));
    const cameBack = (): boolean => sessions.busy === 0;
    if (!cameBack()) {
      this.#log.warn({ tasks: sessions.busy }, "running tasks are cancelled");
      sessions.abort();
      await this.#changes.until(cameBack, until(beyondGraceMs.cancelled));
    }
    // With its session gone, a task whose result is not written would be taken for one that was cut off.
    await this.#changes.until(() => turn.written, until(beyondGraceMs.sessions));
    await executors.end();
    this.#ending.abort();
    bell.notify();
    await this.#work;
    statistics.report();
    await tracing?.end();
  }

  /** Starts nothing more, and keeps sessions as `#letGo` says. */
  #beginDraining(): void {
    this.#draining = true;
    this.#parts.sessions.putOffEnds();
    this.#service?.drain();
  }

  #changed(urgent: boolean): void {
    const { bell, cutOff, large, outbox, statistics } = this.#parts;
    this.#changes.tell();
    this.#letGo();
    cutOff.wake();
    statistics.touch();
    large.ask();
    if (urgent || outbox.size >= manyResults) bell.notify();
    else bell.ringIn(gatherMs);
  }

  /**
   * Gives up sessions beyond the grant, and lets those end that are to: not before what came out of them is
   * written when another manager may have the table, which would take it for cut off.
   */
  #letGo(): void {
    const { sessions, turn, workforce } = this.#parts;
    if (this.#draining && !turn.written) return;
    workforce.letGo();
    sessions.letEnd();
  }

  /** What the server's settings and the file's parameters come to, at the start or later. */
  #goBy(settings: ManagerSettings): void {
    const before = this.#settings;
    this.#settings = settings;
    this.#parts.executors.reconfigure();
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
  #isPlace(place: TableLocation): boolean {
    const { schema, table } = this.#table;
    if (place.schema === schema && place.table === table) return true;
    this.#send({ type: "moved", place });
    return false;
  }

  /** Serves, and comes back after every failure with growing pauses, until it is told to end. */
  async #serveForEver(): Promise<void> {
    let said: string | null = null;
    while (!this.#ending.signal.aborted) {
      this.#retry = new AbortController();
      try {
        await this.#serve(() => {
          this.#backoff.reset();
          said = null;
        });
      } catch (error) {
        const reason = toReport(missingPrivilege(error, this.#table));
        // One line for each change of state, not for each try.
        if (said !== reason.message) {
          said = reason.message;
          this.#log.warn({ code: reason.code, reason: reason.message }, "manager waits");
        }
        this.#send({ type: "waiting", reason });
        if (this.#finished()) return;
        const signal = AbortSignal.any([this.#ending.signal, this.#retry.signal]);
        await sleep(this.#backoff.next(), signal);
      }
    }
  }

  async #serve(working: () => void): Promise<void> {
    const entry = this.#entry;
    const client = await connectManager(entry, this.#ending.signal);
    const over = new AbortController();
    let watch: ConnectionWatchdog | null = null;
    try {
      const lost = new Promise<never>((_, reject) => {
        client.once("end", () => {
          this.#parts.bell.notify();
          reject(connectionLost(client, "the manager's"));
        });
      });
      lost.catch(() => {});
      if (!this.#isPlace(await locateTable(client, entry, refuseTo(this.#log)))) {
        await this.#changes.until(() => false, this.#ending.signal);
        return;
      }
      watch = new ConnectionWatchdog(client, entry.target, {
        name: "pg_work watch",
        quietMs,
        rests: () => this.#service?.asleep ?? true,
      });
      this.#superuser = await isSuperuser(client);
      const settings = await readSettings(client, entry, this.#log);
      this.#goBy(settings);
      this.#parts.statistics.connected();
      await setApplicationName(client, entry, settings.sleepMs);
      // Who only writes what comes out makes nothing, and needs no lock: another may have the table.
      const made = this.#draining ? this.#oid : null;
      const oid = (this.#oid = made ?? (await ensureTable(client, this.#table, entry, this.#log)));
      const locked = await this.#lock(client, oid);
      this.#parts.recalls.attach(locked);
      await discardUnconfirmed(client, this.#table, this.#parts.sessions, this.#parts.outbox);
      const service = new ManagerLoop(client, settings, {
        ...this.#parts,
        wakeUps: new WakeUps(client, oid),
      });
      client.on("notification", () => service.hear());
      await listen(client, this.#table);
      this.#service = service;
      this.#client = client;
      if (this.#draining) service.drain();
      // Reconfigured while it got this far.
      if (this.#entry !== entry) this.#renewal.start();
      this.#parts.cancellations.attach(client, (done) => this.#parts.sessions.cancelled(done));
      const began = (): void => {
        this.#log.info(
          { table: this.#table.qualified, sleepMs: settings.sleepMs },
          "manager works",
        );
        this.#send({ type: "ready" });
      };
      const partitions = new PartitionWatcher({
        table: this.#table,
        entry: () => this.#entry,
        everyMs: () => this.#settings?.resetMs ?? Infinity,
        found: () => this.#renewal.start(),
        log: this.#log,
      });
      const worked = (): void => {
        working();
        this.#parts.large.ask();
        this.#changes.tell();
        this.#letGo();
        if (!this.#draining) partitions.look(client);
      };
      const handOver = async (): Promise<void> => {
        if (locked) await unlock(client, oid);
      };
      const released = (): void => this.#send({ type: "released" });
      await Promise.race([
        service.run(() => this.#finished(), { began, worked, handOver, released }),
        this.#parts.cutOff.watch(client, over.signal),
        this.#parts.stalls.watch(client, over.signal, () => (this.#draining ? null : service)),
        lost,
      ]);
    } catch (error) {
      // Whoever sends something between the server's last words and the end hears the driver's.
      throw isLoss(error) ? connectionLost(client, "the manager's") : error;
    } finally {
      over.abort();
      this.#service = null;
      this.#client = null;
      this.#parts.cancellations.detach();
      this.#parts.orphans.forgive(this.#parts.sessions.owners());
      this.#parts.recalls.lose();
      watch?.stop();
      await this.#parts.large.stop();
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
      await sleep(lockTryMs, this.#ending.signal);
    }
    return false;
  }

  /** Told to end, nothing runs, and what came out is written as far as it can be. */
  #finished(): boolean {
    if (!this.#ending.signal.aborted) return false;
    const { size, refused } = this.#parts.outbox;
    const late = performance.now() >= this.#graceUntil + beyondGraceMs.results;
    if (size > refused && !late && !this.#lastWrites.over(size - refused)) return false;
    if (size > 0) {
      const message = "results could not be written: the next start settles these tasks";
      this.#log.error({ tasks: size }, message);
    }
    return true;
  }
}

const longestPauseMs = (entry: Entry): number => entry.parameters["pg_conf.restart"] * 1000;
