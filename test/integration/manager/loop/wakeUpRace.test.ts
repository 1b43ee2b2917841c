import assert from "node:assert/strict";
import { after } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { freePort } from "../../../../src/embedded/port.js";
import { WorkCycle, type CycleOutcome } from "../../../../src/manager/loop/workCycle.js";
import { WakeUps, type WakeUpLimits } from "../../../../src/manager/loop/wakeUps.js";
import { PoolScaler } from "../../../../src/manager/sessions/poolScaler.js";
import { sqlState, type Client } from "../../../../src/shared/postgres/client.js";
import { lockClasses } from "../../../../src/shared/postgres/advisoryLocks.js";
import { connectTo } from "../../../support/connectTo.js";
import { test } from "../../../support/limitedTest.js";
import { NoPruning, startService, type StandIns } from "../../../support/madeService.js";
import { OwnServer } from "../../../support/ownServer.js";
import { ensure, openManager } from "../../../support/taskTables.js";

const server = await OwnServer.at(await freePort());
await server.start({ max_prepared_transactions: 20 });
const admin = await connectTo(server.url);
after(() => admin.end());

/** In each of them some clients write at once, and then wait until all has been seen. */
const rounds = Number(process.env["WAKE_UP_ROUNDS"] ?? 2000);
/** How often a manager that is told of everything falls asleep, with a writer that does not wait for that. */
const sleepsWanted = Number(process.env["WAKE_UP_SLEEPS"] ?? 2000);
/** It looks by itself after the first wake-up, and only for a moment. */
const restless: WakeUpLimits = { wakeUps: 1, shortestQuietMs: 1, longestQuietMs: 1 };
/** It never looks by itself. */
const told: WakeUpLimits = { wakeUps: Infinity, shortestQuietMs: 1, longestQuietMs: 1 };
/** So many managers take part, each with a database of its own, for most of it is waiting. */
const managers = 4;

const insert = (data: string): string => `INSERT INTO task (input, data) VALUES ('', '${data}')`;
const some = (most: number): Promise<void> => pause(Math.random() * most);

/** What became of what a producer did: the task `data` is there, or it is not. */
type End = "there" | "there, prepared" | "not there";

/** What a producer may do. */
const ways: readonly ((client: Client, data: string) => Promise<End>)[] = [
  async (client, data) => {
    await client.query(insert(data));
    return "there";
  },
  async (client, data) => {
    await client.query(`BEGIN; ${insert(data)}`);
    await some(8);
    await client.query("COMMIT");
    return "there";
  },
  async (client, data) => {
    await client.query(`BEGIN; SAVEPOINT a; ${insert("undone")}; ROLLBACK TO a`);
    await some(4);
    await client.query(insert(data));
    await some(4);
    await client.query("COMMIT");
    return "there";
  },
  async (client, data) => {
    await client.query(
      `BEGIN; SAVEPOINT a; ${insert(data)}; RELEASE a; SAVEPOINT b; ${insert("no")}`,
    );
    await some(8);
    await client.query("ROLLBACK TO b; COMMIT");
    return "there";
  },
  async (client) => {
    await client.query(`BEGIN; ${insert("undone")}`);
    await some(2);
    await client.query("ROLLBACK");
    return "not there";
  },
  async (client, data) => {
    await client.query(`BEGIN; ${insert(data)}`);
    await some(4);
    // The server lets only those prepare that need not notify.
    try {
      await client.query(`PREPARE TRANSACTION '${data}'`);
    } catch (error) {
      assert.equal(sqlState(error), "0A000");
      return "not there";
    }
    await some(4);
    await client.query(`COMMIT PREPARED '${data}'`);
    return "there, prepared";
  },
];

const isBusy = `SELECT EXISTS (
  SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = ${lockClasses.busy}::oid
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS busy`;

/** One manager, put to test by some clients. */
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
   * @param more whether another round is to follow, of which this is the number
   */
  async run(
    limits: WakeUpLimits,
    writers: (round: number) => number,
    more: (round: number) => boolean,
  ): Promise<void> {
    const name = this.#database;
    await admin.query(`CREATE DATABASE ${name}`);
    const { port } = server;
    const place = { host: "127.0.0.1", port, user: "postgres", database: name } as const;
    const target = { ...place, sslmode: "disable", connectTimeoutMs: 10_000 } as const;
    await ensure(target);
    const manager = await openManager(target);
    const service = await startService(manager, target, {
      ...this.#standIns(manager),
      limits,
    });
    const url = new URL(server.url);
    url.pathname = `/${name}`;
    const clients = await Promise.all([1, 2, 3].map(() => connectTo(url.href)));
    // In each round one may be the last, whom no later one's wake-up helps.
    for (let round = 0; more(round); round += 1) {
      await Promise.all(
        clients
          .slice(0, writers(round))
          .map((client, index) => this.#write(client, `${name}-${round}-${index}`)),
      );
    }
    for (const client of clients) await client.end();
    await service.stop();
  }

  /** Does something, and resolves when the manager has come upon the task that it leaves. */
  async #write(client: Client, data: string): Promise<void> {
    await some(4);
    const seen = new Promise<void>((resolve) => this.#seen.set(data, resolve));
    const end = await ways[Math.floor(Math.random() * ways.length)]?.(client, data);
    if (end === "there, prepared") this.prepared += 1;
    if (end !== "not there") await seen;
  }

  #standIns(manager: Client): StandIns {
    const slept = (): void => void (this.sleeps += 1);
    const leftBusy = (): void => void (this.waysOutOfBusy += 1);
    const see = (data: string): void => {
      this.#seen.get(data)?.();
      this.#seen.delete(data);
    };
    return {
      /** Finds tasks as any turn does, and has nothing else to do with them than to end them. */
      turn: class extends WorkCycle {
        override async once(client: Client): Promise<CycleOutcome> {
          const { rows } = await client.query<{ data: string }>(
            "UPDATE public.task SET state = 'DONE', ready = NULL WHERE ready RETURNING data",
          );
          for (const { data } of rows) see(data);
          const nothing = {
            more: 0,
            gone: 0,
            ended: 0,
            again: false,
            nearestMs: null,
            putOff: false,
          };
          return { claimed: rows.length, ...nothing };
        }
      },
      workforce: class extends PoolScaler {
        override async dismiss(): Promise<void> {
          slept();
        }
      },
      // Nothing is to make up for a wake-up that is lost.
      pruning: NoPruning,
      wakeUps: class extends WakeUps {
        #busy = false;

        override async after(turn: Parameters<WakeUps["after"]>[0]): Promise<boolean> {
          const { rows } = await manager.query<{ busy: boolean }>(isBusy);
          const busy = rows[0]?.busy === true;
          if (this.#busy && !busy) leftBusy();
          this.#busy = busy;
          return await super.after(turn);
        }
      },
    };
  }
}

test("no wake-up is lost, however often the manager falls asleep and whatever writes meanwhile", async (t) => {
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
  const [sleeps = 0, waysOutOfBusy = 0, prepared = 0] = (
    ["sleeps", "waysOutOfBusy", "prepared"] as const
  ).map((what) => races.reduce((sum, race) => sum + race[what], 0));
  t.diagnostic(
    `${rounds} rounds: asleep ${sleeps} times, out of busy ${waysOutOfBusy} times, ${prepared} prepared`,
  );
  for (const count of [sleeps * 10, waysOutOfBusy, prepared * 10])
    assert.ok(count > rounds / 10, "it was put to test");
});

test("no wake-up is lost by a manager that is told of all, as it falls asleep thousands of times", async (t) => {
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
