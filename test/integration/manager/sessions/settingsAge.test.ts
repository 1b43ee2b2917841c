import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { after } from "node:test";
import { freePort } from "../../../../src/embedded/port.js";
import { PoolScaler } from "../../../../src/manager/sessions/poolScaler.js";
import { connectClient, type Client } from "../../../../src/shared/postgres/client.js";
import { createDatabase } from "../../../support/database.js";
import { startService } from "../../../support/madeService.js";
import { openManagerConnection } from "../../../support/managerConnection.js";
import { test } from "../../../support/limitedTest.js";
import { OwnServer } from "../../../support/ownServer.js";
import { PgTask } from "../../../support/pgTask.js";
import { Tasks } from "../../../support/tasks.js";

// Locks a table that each login reads: a server of its own, so that no other test waits.
const clients: Client[] = [];
after(() => Promise.all(clients.map((client) => client.end())));
const pgTask = new PgTask();
const server = await OwnServer.at(await freePort());
await server.start();
await pgTask.start({ url: server.url, "pg_task.sleep": 200 });

async function open(): Promise<Client> {
  const place = { host: "127.0.0.1", port: server.port, user: "postgres", database: "postgres" };
  const client = await connectClient(
    { ...place, sslmode: "disable", connectTimeoutMs: 10_000 },
    { applicationName: "test" },
  );
  clients.push(client);
  return client;
}

const client = await open();
const locker = await open();
const tasks = await Tasks.of(client);

test("what sessions begin with is known before one is opened", async () => {
  const database = await createDatabase();
  const manager = await openManagerConnection(database.url);
  const order: string[] = [];
  const news = new EventEmitter();
  class Growing extends PoolScaler {
    override async grow(): Promise<void> {
      order.push("sessions may be opened");
      news.emit("grow");
    }
  }
  const grows = once(news, "grow");
  const query = manager.query.bind(manager);
  const noted = (...asked: unknown[]): unknown => {
    const names = asked.map((each) => Object(each).name);
    if (names.includes("settings version")) order.push("settings are looked at");
    return Reflect.apply(query, manager, asked);
  };
  Object.assign(manager, { query: noted });
  const service = await startService(manager, database.target, { workforce: Growing });
  await grows;
  assert.deepEqual(order.slice(0, 2), ["settings are looked at", "sessions may be opened"]);
  await service.stop();
});

for (const [count, how] of [
  [1, "the only task"],
  [3, "each of several tasks"],
] as const) {
  test(`${how} gets to its session though the look at the settings beside its claim fails`, async () => {
    // There are sessions for them: none could log in.
    const inputs = Array.from({ length: count }, (_, n) => ({
      input: "SELECT pg_backend_pid()",
      group: `group ${n}`,
    }));
    await tasks.ended(...(await tasks.insert(...inputs)));
    await locker.query("BEGIN; LOCK TABLE pg_db_role_setting");
    await client.query("BEGIN");
    const ids = await tasks.insert(...inputs);
    await client.query("COMMIT");
    await tasks.ended(...ids);
    await locker.query("COMMIT");
  });
}
