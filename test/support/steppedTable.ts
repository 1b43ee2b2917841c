import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { after, mock } from "node:test";
import { WorkCycle } from "../../src/manager/loop/workCycle.js";
import type { ManagerSettings } from "../../src/manager/model/settings.js";
import { SlowRunMonitor } from "../../src/manager/sessions/slowRunMonitor.js";
import type { Client } from "../../src/shared/postgres/client.js";
import { unreservedStarts } from "./claims.js";
import { createDatabase, type TestDatabase } from "./database.js";
import { createComponents, managerSettings } from "./managerComponents.js";
import { openManager } from "./taskTables.js";
import { insertTask, only } from "./tasks.js";

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
   * @param isPatient whether no run counts as slow, however long it takes
   */
  async manage(count: number, known: Readonly<Record<string, number>>, isPatient = false) {
    const { user } = this;
    const news = new EventEmitter();
    const events = { sessionChanged: () => void news.emit("news"), objectMissing: assert.fail };
    const components = createComponents(this.database.target, {}, events);
    const { cancellations, executors, groups, orphans, pendingResults, poolScaler, runTimes, sessions } = components;
    components.isSuperuser = true;
    if (isPatient) mock.method(SlowRunMonitor.prototype, "start", () => {});
    else mock.restoreAll();
    Object.assign(components, { reserve: { starts: unreservedStarts(100), kept: 0 } });
    // Queued tasks stay where they are.
    Object.defineProperty(poolScaler, "canUseMore", { value: false });
    cancellations.attach(this.managerClient, (done) => sessions.confirmCancel(done));
    const lost: { id: string; front: boolean }[] = [];
    orphans.add = ({ id, hash, key }, front) => {
      lost.push({ id, front: Boolean(front) });
      groups.removeOrphan(hash, key);
    };
    for (const [group, ms] of Object.entries(known)) {
      const hash = await this.hashOf(group);
      for (let each = 0; each < 100; each += 1) runTimes.add(hash, ms);
    }
    after(() => executors.end());
    const cycle = new WorkCycle(components);
    const until = async (condition: () => boolean): Promise<void> => {
      while (!condition()) await once(news, "news");
    };
    const step = (limits: Partial<ManagerSettings> = {}, lookAhead = 0) => {
      components.settings = { ...managerSettings, ...limits };
      Object.defineProperty(poolScaler, "lookAhead", { value: lookAhead, configurable: true });
      return cycle.run(this.managerClient, { checkRuns: true, notified: true, polls: false });
    };
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
      await insertTask(this.user, input, { group: "g", ...columns });
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
