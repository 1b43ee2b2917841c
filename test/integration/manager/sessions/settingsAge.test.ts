import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { after } from "node:test";
import { freePort } from "../../../../src/embedded/port.js";
import { type Client } from "../../../../src/shared/postgres/client.js";
import { createDatabase } from "../../../support/database.js";
import { startManagerLoop } from "../../../support/managerLoop.js";
import { openManager } from "../../../support/taskTables.js";
import { test } from "../../../support/limitedTest.js";
import { RestartableServer } from "../../../support/restartableServer.js";
import { PgTask } from "../../../support/pgTask.js";
import { Tasks } from "../../../support/tasks.js";
import { connectTo } from "../../../support/connectTo.js";

// The tests lock a catalog table that each login reads. They use a server of their own, so that no other test has to
// wait.
const clients: Client[] = [];
after(() => Promise.all(clients.map((client) => client.end())));
const pgTask = new PgTask();
const server = await RestartableServer.create(await freePort());
await server.start();
await pgTask.start({ url: server.url, "pg_task.sleep": 200 });

async function open(): Promise<Client> {
  const place = { host: "127.0.0.1", port: server.port, user: "postgres", database: "postgres" };
  const client = await connectTo({ ...place, sslmode: "disable", connectTimeoutMs: 10_000 });
  clients.push(client);
  return client;
}

const client = await open();
const locker = await open();
const tasks = await Tasks.create(client);

test("the initial settings of sessions are known before one is opened", async () => {
  const database = await createDatabase();
  const manager = await openManager(database.target);
  const order: string[] = [];
  const news = new EventEmitter();
  const grow = async (): Promise<void> => {
    order.push("sessions may be opened");
    news.emit("grow");
  };
  const grows = once(news, "grow");
  const query = manager.query.bind(manager);
  const noted = (...asked: unknown[]): unknown => {
    const names = asked.map((each) => Object(each).name);
    if (names.includes("settings version")) order.push("settings are looked at");
    return Reflect.apply(query, manager, asked);
  };
  Object.assign(manager, { query: noted });
  const service = await startManagerLoop(manager, database.target, {
    components: ({ poolScaler }) => ({ poolScaler: Object.assign(poolScaler, { grow }) }),
  });
  await grows;
  assert.deepEqual(order.slice(0, 2), ["settings are looked at", "sessions may be opened"]);
  await service.stop();
});

for (const [count, how] of [
  [1, "the only task"],
  [3, "each of several tasks"],
] as const) {
  test(`${how} is dispatched although the query for changed settings that accompanies its claim fails`, async () => {
    // The tasks need sessions that are already open, because no new session could log in.
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
