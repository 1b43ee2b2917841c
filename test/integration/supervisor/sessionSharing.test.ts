import assert from "node:assert/strict";
import { freePort } from "../../../src/embedded/port.js";
import type { Client } from "../../../src/shared/postgres/client.js";
import { eventually } from "../../support/tasks.js";
import { connectTo } from "../../support/connectTo.js";
import { test } from "../../support/limitedTest.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { startPgTask, type PgTask } from "../../support/pgTask.js";

const server = await RestartableServer.create(await freePort());

/** Starts the server with this max_connections, pg-task with two tables, and a client. */
async function start(connections: number, config: object): Promise<{ client: Client; pgTask: PgTask }> {
  await server.start({ max_connections: connections });
  const pgTask = await startPgTask({
    url: server.url,
    "pg_task.sleep": 50,
    "pg_task.json": [{ data: "postgres" }, { data: "postgres", table: "late" }],
    ...config,
  });
  return { client: await connectTo(server.url), pgTask };
}

async function insert(client: Client, table: string, tasks: number, input: string): Promise<void> {
  await client.query(
    `INSERT INTO ${table} (input, "group") SELECT $1, 'group ' || n FROM generate_series(1, $2::integer) AS n`,
    [input, tasks],
  );
}

const countUnfinished = (table: string): string =>
  `SELECT count(*)::integer AS count FROM ${table} WHERE state NOT IN ('DONE', 'FAIL')`;

test("opens sessions for one table although another table's tasks use all connections of the server", async () => {
  const { client, pgTask } = await start(30, {});
  try {
    await insert(client, "task", 400, "SELECT pg_sleep(0.5)");
    await pgTask.line("connection limit of the server reached, tasks wait");
    await insert(client, "late", 3, "SELECT 1");
    await eventually<{ count: number }>(client, countUnfinished("late"), ([row]) => row?.count === 0);
    const { rows } = await client.query<{ count: number }>(countUnfinished("task"));
    assert.ok(rows[0] !== undefined && rows[0].count > 0, "they waited for all tasks of the other table");
  } finally {
    await client.end();
    await pgTask.stop({ graceMs: 0 });
    await server.stop();
  }
});

test("grants sessions that one table does not use to another table at once", async () => {
  const { client, pgTask } = await start(100, { "pg_conf.max": 4, "pg_task.sleep": 1000 });
  try {
    await insert(client, "task", 12, "SELECT pg_sleep(0.3)");
    await eventually<{ count: number }>(client, countUnfinished("task"), ([row]) => row?.count === 0);
    await client.query("SELECT pg_advisory_lock(1)");
    const since = performance.now();
    await insert(client, "late", 4, "SELECT pg_advisory_xact_lock_shared(1)");
    await eventually<{ count: number }>(
      client,
      "SELECT count(*)::integer AS count FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND NOT granted",
      ([row]) => row?.count === 4,
    );
    // Idle sessions end after a minute.
    assert.ok(performance.now() - since < 50_000, "they waited for idle sessions to end");
    await client.query("SELECT pg_advisory_unlock(1)");
    await eventually<{ count: number }>(client, countUnfinished("late"), ([row]) => row?.count === 0);
  } finally {
    await client.end();
    await pgTask.stop({ graceMs: 0 });
    await server.stop();
  }
});
