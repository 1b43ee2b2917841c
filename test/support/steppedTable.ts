import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { after } from "node:test";
import { OwedSuccessors } from "../../src/manager/upkeep/owedSuccessors.js";
import { Claimer } from "../../src/manager/claim/claimer.js";
import { ExecutorThreads } from "../../src/manager/sessions/executorThreads.js";
import { ActiveGroups } from "../../src/manager/groups/groups.js";
import { GroupScanner } from "../../src/manager/groups/groupScanner.js";
import { PendingResults } from "../../src/manager/results/pendingResults.js";
import { LedgerRotation } from "../../src/manager/upkeep/ledgerRotation.js";
import { DeferredPauses } from "../../src/manager/groups/deferredPauses.js";
import { PipelineRecalls } from "../../src/manager/sessions/pipelineRecalls.js";
import type { StartedTask } from "../../src/manager/model/tasks.js";
import { RetryQueue } from "../../src/manager/results/retryQueue.js";
import { RunTimes } from "../../src/manager/sessions/runTimes.js";
import { SettingsAge } from "../../src/manager/sessions/settingsAge.js";
import { SessionPool } from "../../src/manager/sessions/sessionPool.js";
import type { ManagerSettings } from "../../src/manager/model/settings.js";
import { cancelBackend } from "../../src/manager/sessions/backendCancellations.js";
import { taskTable } from "../../src/manager/schema/taskTable.js";
import type { Client } from "../../src/shared/postgres/client.js";
import { WorkCycle } from "../../src/manager/loop/workCycle.js";
import { createLog } from "../../src/shared/log.js";
import { unreservedStarts } from "./claims.js";
import { createDatabase, type TestDatabase } from "./database.js";
import { noDependencies } from "./dependencies.js";
import { retryPolicy } from "./retryPolicy.js";
import { openManager } from "./taskTables.js";
import { only } from "./tasks.js";

const settings: ManagerSettings = {
  sleepMs: 1000,
  resetMs: 1000,
  idle: 60,
  limit: 1000,
  fetch: 100,
  run: 1000,
  outputLimit: 64 << 20,
  crash: 3,
  closeMs: 60_000,
  batch: 100,
  restartMs: 1000,
  ...retryPolicy,
};

const table = taskTable("public", "task");
const log = createLog({ level: "silent", name: "test", write: () => {} });

export interface Planted {
  readonly group?: string;
  /** Whether the task waits until the gate is opened. */
  readonly gated?: boolean;
  readonly [column: string]: string | number | boolean | undefined;
}

export type SteppedManager = Awaited<ReturnType<SteppedTable["manage"]>>;

/** A task table whose manager has real components, but runs a cycle only when a test says so. */
export class SteppedTable {
  readonly database: TestDatabase;
  readonly user: Client;
  readonly managerClient: Client;
  readonly #gate: Client;

  private constructor(database: TestDatabase, user: Client, managerClient: Client, gate: Client) {
    this.database = database;
    this.user = user;
    this.managerClient = managerClient;
    this.#gate = gate;
  }

  static async create(): Promise<SteppedTable> {
    const database = await createDatabase();
    const user = await database.connect();
    const stepped = new SteppedTable(database, user, await openManager(database.target), await database.connect());
    await user.query("CREATE TABLE ran (id bigint)");
    return stepped;
  }

  /** Deletes all tasks. The next one has the id 1. */
  async clear(): Promise<void> {
    await this.user.query("TRUNCATE task, ran RESTART IDENTITY");
  }

  /**
   * Starts a manager with `count` open sessions.
   *
   * @param known run times that the manager has recorded for these groups, in ms
   * @param slowMs how long a run may take before the tasks queued behind it are recalled, in ms
   */
  async manage(count: number, known: Readonly<Record<string, number>>, slowMs = 50) {
    const { user } = this;
    const news = new EventEmitter();
    const groups = new ActiveGroups();
    const runTimes = new RunTimes();
    const pendingResults = new PendingResults();
    const starts = new RetryQueue<StartedTask>();
    const lost: { id: string; front: boolean }[] = [];
    for (const [group, ms] of Object.entries(known)) {
      const hash = await this.hashOf(group);
      for (let each = 0; each < 100; each += 1) runTimes.add(hash, ms);
    }
    const executors = new ExecutorThreads({
      parameters: () => ({
        target: this.database.target,
        schema: "public",
        table: "task",
        finishFunction: table.qualifiedFinish,
        resetFunction: table.qualifiedReset,
        ledgers: ["public.task_ledger_1", "public.task_ledger_2"],
        outputLimit: settings.outputLimit,
        isSuperuser: true,
        lostRunTimeoutMs: 3_600_000,
        serverStart: null,
      }),
      closeMs: () => settings.closeMs,
      events: {
        message: (thread, message) => sessions.receive(thread, message),
        connectionRequest: () => {},
        ended: (thread, reason) => sessions.threadEnded(thread, reason),
      },
      log,
      threadLog: log,
    });
    const sessions = new SessionPool({
      executors,
      groups,
      runTimes,
      maxThreads: () => 1,
      mayUseMore: () => false,
      slowMs,
      events: {
        changed: () => news.emit("news"),
        result: (result, owner, queued) => pendingResults.add(result, owner, queued),
        started: (task) => starts.add(task),
        silent: () => {},
        remote: () => {},
        lost: ({ id }, _, front) => lost.push({ id, front }),
        recall: (recall) => recalls.add(recall),
        permitWanted: (session) => recalls.requestPermit(session),
        permitUnused: (permit) => recalls.revoke(permit),
        opened: () => {},
        openFailed: ({ message }) => assert.fail(message),
        objectMissing: assert.fail,
        cancel: (each) => {
          void cancelBackend(this.managerClient, each.pid).then(() => sessions.confirmCancel(each));
        },
      },
      log,
    });
    after(() => executors.end());
    const recalls = new PipelineRecalls(sessions.recalls);
    const groupScanner = new GroupScanner({ table, groups, log });
    const owed = new OwedSuccessors({ table, log });
    const cycle = new WorkCycle({
      table,
      owed,
      sessions,
      groups,
      pendingResults,
      remotePids: new RetryQueue(),
      recalls,
      groupScanner,
      deferredPauses: new DeferredPauses(table, log),
      claimer: new Claimer({
        table,
        owed,
        sessions,
        groups,
        groupScanner,
        pendingResults,
        runTimes,
        settingsAge: new SettingsAge({ sessions, log }),
        log,
        ledgers: new LedgerRotation({ table, log }),
      }),
      starts,
      retryPolicy: () => retryPolicy,
      onRetries: () => {},
      dependencies: noDependencies(table),
      log,
    });
    const until = async (condition: () => boolean): Promise<void> => {
      while (!condition()) await once(news, "news");
    };
    const step = (limits: Partial<ManagerSettings> = {}, lookAhead = 0) =>
      cycle.run(
        this.managerClient,
        { ...settings, ...limits },
        { starts: unreservedStarts(100), kept: 0, lookAhead, checkRuns: true, notified: true, polls: false },
      );
    sessions.open(count);
    await until(() => sessions.free === count);
    return {
      groups,
      sessions,
      pendingResults,
      lost,
      until,
      step,
      /** Runs cycles until no task waits or runs. */
      async finish(): Promise<void> {
        for (;;) {
          await step();
          const { rowCount } = await user.query("SELECT FROM task WHERE ready OR owner IS NOT NULL LIMIT 1");
          if (rowCount === 0) return;
          if (sessions.busy > 0 && pendingResults.isEmpty) await once(news, "news");
        }
      },
    };
  }

  async hashOf(group: string): Promise<number> {
    const { rows } = await this.user.query<{ hash: number }>("SELECT hashtext($1) AS hash", [group]);
    return only(rows).hash;
  }

  /** Closes the gate, and inserts tasks that record that they ran. Ids start at 1. */
  async plant(...tasks: readonly Planted[]): Promise<void> {
    await this.#gate.query("SELECT pg_advisory_lock(1)");
    await this.user.query("BEGIN");
    for (const { gated = false, ...columns } of tasks) {
      const wait = gated ? "SELECT pg_advisory_xact_lock_shared(1);" : "";
      const input = `${wait} INSERT INTO ran VALUES (current_setting('pg_task.id')::bigint)`;
      const row = { input, group: "g", ...columns };
      const names = Object.keys(row).map((name) => `"${name}"`);
      await this.user.query(
        `INSERT INTO task (${names.join(", ")}) VALUES (${names.map((_, index) => `$${index + 1}`).join(", ")})`,
        Object.values(row),
      );
    }
    await this.user.query("COMMIT");
  }

  async openGate(): Promise<void> {
    await this.#gate.query("SELECT pg_advisory_unlock_all()");
  }

  async states(): Promise<string[]> {
    const { rows } = await this.user.query<{ state: string }>("SELECT state::text FROM task ORDER BY id");
    return rows.map(({ state }) => state);
  }

  async ran(): Promise<number[]> {
    const { rows } = await this.user.query<{ id: number }>("SELECT id::integer FROM ran ORDER BY ctid");
    return rows.map(({ id }) => id);
  }
}
