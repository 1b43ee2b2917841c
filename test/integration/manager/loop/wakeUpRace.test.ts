import assert from "node:assert/strict";
import { after } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { freePort } from "../../../../src/embedded/port.js";
import { WorkCycle, type CycleOutcome } from "../../../../src/manager/loop/workCycle.js";
import { BusyMode, type BusyModeLimits } from "../../../../src/manager/loop/busyMode.js";
import { sqlState, type Client } from "../../../../src/shared/postgres/client.js";
import { lockClasses } from "../../../../src/shared/postgres/advisoryLocks.js";
import { connectTo } from "../../../support/connectTo.js";
import { test } from "../../../support/limitedTest.js";
import { startManagerLoop, withoutPruning, type ManagerLoopOverrides } from "../../../support/managerLoop.js";
import { RestartableServer } from "../../../support/restartableServer.js";
import { ensureTaskTable, openManager } from "../../../support/taskTables.js";

const server = await RestartableServer.create(await freePort());
await server.start({ max_prepared_transactions: 20 });
const admin = await connectTo(server.url);
after(() => admin.end());

/**
 * Number of rounds. In each round, some clients write at the same time, and then wait until every task has been found.
 * CI runs more of them than `npm test`.
 */
const rounds = Number(process.env["WAKE_UP_ROUNDS"] ?? 300);
/** How often a manager that never polls has to fall asleep while a client keeps writing. */
const sleepsWanted = Number(process.env["WAKE_UP_SLEEPS"] ?? 300);
/** Limits with which the manager enters busy mode after the first notification, and soon leaves it. */
const restless: BusyModeLimits = { notifications: 1, waiting: Infinity, quietMs: { min: 1, max: 1 } };
/** Limits with which the manager never enters busy mode. */
const told: BusyModeLimits = { notifications: Infinity, waiting: Infinity, quietMs: { min: 1, max: 1 } };
/** Number of managers. Each has its own database. Most of the time they wait. */
const managers = 4;

const insert = (data: string): string => `INSERT INTO task (input, data) VALUES ('', '${data}')`;
const randomPause = (maxMs: number): Promise<void> => pause(Math.random() * maxMs);

/** Whether the task that a producer identifies by `data` exists in the end. */
type End = "there" | "there, prepared" | "not there";

/** What producers may do. */
const ways: readonly ((client: Client, data: string) => Promise<End>)[] = [
  async (client, data) => {
    await client.query(insert(data));
    return "there";
  },
  async (client, data) => {
    await client.query(`BEGIN; ${insert(data)}`);
    await randomPause(8);
    await client.query("COMMIT");
    return "there";
  },
  async (client, data) => {
    await client.query(`BEGIN; SAVEPOINT a; ${insert("undone")}; ROLLBACK TO a`);
    await randomPause(4);
    await client.query(insert(data));
    await randomPause(4);
    await client.query("COMMIT");
    return "there";
  },
  async (client, data) => {
    await client.query(`BEGIN; SAVEPOINT a; ${insert(data)}; RELEASE a; SAVEPOINT b; ${insert("no")}`);
    await randomPause(8);
    await client.query("ROLLBACK TO b; COMMIT");
    return "there";
  },
  async (client) => {
    await client.query(`BEGIN; ${insert("undone")}`);
    await randomPause(2);
    await client.query("ROLLBACK");
    return "not there";
  },
  async (client, data) => {
    await client.query(`BEGIN; ${insert(data)}`);
    await randomPause(4);
    // The server refuses to prepare a transaction that has sent a notification.
    try {
      await client.query(`PREPARE TRANSACTION '${data}'`);
    } catch (error) {
      assert.equal(sqlState(error), "0A000");
      return "not there";
    }
    await randomPause(4);
    await client.query(`COMMIT PREPARED '${data}'`);
    return "there, prepared";
  },
];

const isBusy = `SELECT EXISTS (
  SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = ${lockClasses.busy}::oid
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS busy`;

/** Tests one manager together with some clients. */
class Race {
  sleeps = 0;
  waysOutOfBusy = 0;
  prepared = 0;
  readonly #database: string;
  readonly #seen = new Map<string, () => void>();

  constructor(database: string) {
    this.#database = database;
  }

  /**
   * @param writers how many clients write in each round
   * @param more returns whether to start the round with this number
   */
  async run(
    limits: BusyModeLimits,
    writers: (round: number) => number,
    more: (round: number) => boolean,
  ): Promise<void> {
    const name = this.#database;
    await admin.query(`CREATE DATABASE ${name}`);
    const { port } = server;
    const place = { host: "127.0.0.1", port, user: "postgres", database: name } as const;
    const target = { ...place, sslmode: "disable", connectTimeoutMs: 10_000 } as const;
    await ensureTaskTable(target);
    const manager = await openManager(target);
    const service = await startManagerLoop(manager, target, {
      ...this.#standIns(manager),
      limits,
    });
    const url = new URL(server.url);
    url.pathname = `/${name}`;
    const clients = await Promise.all([1, 2, 3].map(() => connectTo(url.href)));
    // In each round, one client writes last. If its wake-up is lost, no later wake-up can hide this.
    for (let round = 0; more(round); round += 1) {
      await Promise.all(
        clients.slice(0, writers(round)).map((client, index) => this.#write(client, `${name}-${round}-${index}`)),
      );
    }
    for (const client of clients) await client.end();
    await service.stop();
  }

  /** Performs a random action, and resolves when the manager has found its task. */
  async #write(client: Client, data: string): Promise<void> {
    await randomPause(4);
    const seen = new Promise<void>((resolve) => this.#seen.set(data, resolve));
    const end = await ways[Math.floor(Math.random() * ways.length)]?.(client, data);
    if (end === "there, prepared") this.prepared += 1;
    if (end !== "not there") await seen;
  }

  #standIns(manager: Client): ManagerLoopOverrides {
    const slept = (): void => void (this.sleeps += 1);
    const leftBusy = (): void => void (this.waysOutOfBusy += 1);
    const see = (data: string): void => {
      this.#seen.get(data)?.();
      this.#seen.delete(data);
    };
    return {
      /** Finds tasks as any cycle does, but completes them without running them. */
      workCycle: class extends WorkCycle {
        override async run(client: Client): Promise<CycleOutcome> {
          const { rows } = await client.query<{ data: string }>(
            "UPDATE public.task SET state = 'DONE', ready = NULL WHERE ready RETURNING data",
          );
          for (const { data } of rows) see(data);
          const nothing = {
            more: 0,
            expired: 0,
            ended: 0,
            again: false,
            nearestMs: null,
            gapMs: Infinity,
            deferred: false,
          };
          return { claimed: rows.length, ...nothing };
        }
      },
      components: (components) => ({
        poolScaler: Object.assign(components.poolScaler, { closeAll: async () => slept() }),
        // The cycle above does not find out that no chain runs alone.
        turns: Object.assign(components.turns, { restart: () => components.turns.settle() }),
        // A cycle that prunes could find a task whose wake-up was lost.
        ...withoutPruning(components),
      }),
      busyMode: class extends BusyMode {
        #busy = false;

        override async afterCycle(turn: Parameters<BusyMode["afterCycle"]>[0]): Promise<boolean> {
          const { rows } = await manager.query<{ busy: boolean }>(isBusy);
          const busy = rows[0]?.busy === true;
          if (this.#busy && !busy) leftBusy();
          this.#busy = busy;
          return await super.afterCycle(turn);
        }
      },
    };
  }
}

test("no wake-up is lost while the manager enters and leaves busy mode and falls asleep", async (t) => {
  const races = Array.from({ length: managers }, (_, number) => new Race(`race_${number}`));
  await Promise.all(
    races.map((race) =>
      race.run(
        restless,
        (round) => 1 + (round % 3),
        (round) => round < rounds / managers,
      ),
    ),
  );
  const [sleeps = 0, waysOutOfBusy = 0, prepared = 0] = (["sleeps", "waysOutOfBusy", "prepared"] as const).map((what) =>
    races.reduce((sum, race) => sum + race[what], 0),
  );
  t.diagnostic(`${rounds} rounds: asleep ${sleeps} times, out of busy ${waysOutOfBusy} times, ${prepared} prepared`);
  for (const count of [sleeps * 10, waysOutOfBusy, prepared * 10]) assert.ok(count > rounds / 10, "it was put to test");
});

test("no wake-up is lost without busy mode while the manager falls asleep again and again", async (t) => {
  const races = Array.from({ length: managers }, (_, number) => new Race(`told_${number}`));
  await Promise.all(
    races.map((race) =>
      race.run(
        told,
        () => 1,
        () => race.sleeps < sleepsWanted / managers,
      ),
    ),
  );
  const sleeps = races.reduce((sum, race) => sum + race.sleeps, 0);
  t.diagnostic(`asleep ${sleeps} times`);
  assert.ok(sleeps >= sleepsWanted);
});
