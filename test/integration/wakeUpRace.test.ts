import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { freePort } from "../../src/embedded/port.js";
import { Turn, type TurnOutcome } from "../../src/manager/turn.js";
import { WakeUps } from "../../src/manager/wakeUps.js";
import { Workforce } from "../../src/manager/workforce.js";
import { sqlState, type Client } from "../../src/shared/database.js";
import { connectTo } from "../support/connectTo.js";
import { test } from "../support/limitedTest.js";
import { startService } from "../support/madeService.js";
import { OwnServer } from "../support/ownServer.js";
import { ensure, openManager } from "../support/taskTables.js";

const server = await OwnServer.at(await freePort());
await server.start({ max_prepared_transactions: 20 });
const target = {
  host: "127.0.0.1",
  port: server.port,
  user: "postgres",
  database: "postgres",
  sslmode: "disable",
  connectTimeoutMs: 10_000,
} as const;
await ensure(target);
const manager = await openManager(target);
const rounds = Number(process.env["WAKE_UP_ROUNDS"] ?? 600);

const seen = new Map<string, () => void>();

/** Resolves when the manager has come upon the task. */
const found = (id: string): Promise<void> => new Promise((resolve) => seen.set(id, resolve));

/** Finds tasks as any turn does, and has nothing else to do with them than to end them. */
class FindingTurn extends Turn {
  override async once(client: Client): Promise<TurnOutcome> {
    const { rows } = await client.query<{ data: string }>(
      "UPDATE public.task SET state = 'DONE', ready = NULL WHERE ready RETURNING data",
    );
    for (const { data } of rows) {
      seen.get(data)?.();
      seen.delete(data);
    }
    return { claimed: rows.length, more: 0, gone: 0, again: false, nearestMs: null, putOff: false };
  }
}

let prepared = 0;
let sleeps = 0;
let waysOutOfBusy = 0;

class CountingWorkforce extends Workforce {
  override async dismiss(): Promise<void> {
    sleeps += 1;
  }
}

class CountingWakeUps extends WakeUps {
  #busy = false;

  override async after(turn: Parameters<WakeUps["after"]>[0]): Promise<boolean> {
    const { rows } = await manager.query<{ busy: boolean }>(
      "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::oid) AS busy",
      [0x70677404],
    );
    const busy = rows[0]?.busy === true;
    if (this.#busy && !busy) waysOutOfBusy += 1;
    this.#busy = busy;
    return await super.after(turn);
  }
}

const insert = (data: string): string => `INSERT INTO task (input, data) VALUES ('', '${data}')`;
const some = (most: number): Promise<void> => pause(Math.random() * most);

/** What a producer may do; each leaves the task `data` behind, or nothing at all. */
const ways: readonly ((client: Client, data: string) => Promise<boolean>)[] = [
  async (client, data) => {
    await client.query(insert(data));
    return true;
  },
  async (client, data) => {
    await client.query(`BEGIN; ${insert(data)}`);
    await some(8);
    await client.query("COMMIT");
    return true;
  },
  async (client, data) => {
    await client.query(`BEGIN; SAVEPOINT a; ${insert("undone")}; ROLLBACK TO a`);
    await some(4);
    await client.query(insert(data));
    await some(4);
    await client.query("COMMIT");
    return true;
  },
  async (client, data) => {
    await client.query(
      `BEGIN; SAVEPOINT a; ${insert(data)}; RELEASE a; SAVEPOINT b; ${insert("no")}`,
    );
    await some(8);
    await client.query("ROLLBACK TO b; COMMIT");
    return true;
  },
  async (client) => {
    await client.query(`BEGIN; ${insert("undone")}`);
    await some(2);
    await client.query("ROLLBACK");
    return false;
  },
  async (client, data) => {
    await client.query(`BEGIN; ${insert(data)}`);
    await some(4);
    // The server lets only those prepare that need not notify.
    try {
      await client.query(`PREPARE TRANSACTION '${data}'`);
    } catch (error) {
      assert.equal(sqlState(error), "0A000");
      return false;
    }
    prepared += 1;
    await some(4);
    await client.query(`COMMIT PREPARED '${data}'`);
    return true;
  },
];

test("no wake-up is lost, however often the manager falls asleep and whatever writes meanwhile", async (t) => {
  const service = await startService(manager, target, {
    turn: FindingTurn,
    workforce: CountingWorkforce,
    wakeUps: CountingWakeUps,
    limits: { wakeUps: 1, shortestQuietMs: 1, longestQuietMs: 1 },
  });
  const clients = await Promise.all([1, 2, 3].map(() => connectTo(server.url)));
  // In each round one may be the last, whom no later one's wake-up helps.
  for (let round = 0; round < rounds; round += 1) {
    await Promise.all(
      clients.map(async (client, index) => {
        await some(4);
        const data = `${round}-${index}`;
        const seenOnce = found(data);
        const way = ways[Math.floor(Math.random() * ways.length)];
        if ((await way?.(client, data)) === true) await seenOnce;
      }),
    );
  }
  for (const client of clients) await client.end();
  await service.stop();
  t.diagnostic(`asleep ${sleeps} times, out of busy ${waysOutOfBusy} times, ${prepared} prepared`);
  for (const count of [sleeps * 10, waysOutOfBusy, prepared * 10])
    assert.ok(count > rounds / 10, "it was put to test");
});
