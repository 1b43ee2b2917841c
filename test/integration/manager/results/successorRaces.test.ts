import assert from "node:assert/strict";
import type { OwnedResult } from "../../../../src/manager/model.js";
import { rescueTasks } from "../../../../src/manager/recovery/rescue.sql.js";
import { completeFull } from "../../../../src/manager/results/completeFull.sql.js";
import { releaseTasks } from "../../../../src/manager/results/releaseTasks.sql.js";
import { readColumnSet } from "../../../../src/manager/schema/columnSet.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import type { Client } from "../../../../src/shared/postgres/client.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { retryPolicy } from "../../../support/retryPolicy.js";
import { openManager } from "../../../support/taskTables.js";
import { only } from "../../../support/tasks.js";

const database = await createDatabase();
const client = await database.connect();
const user = await database.connect();
const manager = await openManager(database.target);
const managerPid = only((await manager.query<{ pid: number }>("SELECT pg_backend_pid() AS pid")).rows).pid;
const table = taskTable("public", "task");
const owner = "2147483647 2001-01-01T00:00:00.000000";

async function insert(values: Readonly<Record<string, string | null>>): Promise<string> {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, ${Object.keys(values).join(", ")}) VALUES ('SELECT 1', ${Object.keys(values)
      .map((_, index) => `$${index + 1}`)
      .join(", ")}) RETURNING id`,
    Object.values(values),
  );
  return only(rows).id;
}

/** Waits until the manager's statement waits for the user's transaction. */
async function managerWaits(): Promise<void> {
  for (;;) {
    const { rowCount } = await client.query("SELECT FROM pg_locks WHERE pid = $1 AND NOT granted", [managerPid]);
    if (rowCount === 1) return;
  }
}

/** Ends a task of `owner`, or a due one, in one of the ways in which a schedule goes on. */
type Way = (connection: Client, id: string) => Promise<unknown>;

const complete: Way = async (connection, id) => {
  const columns = await readColumnSet(connection, table);
  const start = "2001-01-01T00:00:00Z";
  const result = { outcome: "ended", session: 1, id, owner, start, stop: null, output: "1", error: null } as const;
  const results = [{ ...result, sqlstate: null, committed: true } as OwnedResult];
  await completeFull(connection, table, columns, results, { retry: retryPolicy });
};

const release: Way = (connection, id) => releaseTasks(connection, table, [{ id, owner }]);

const rescue: Way = async (connection, id) => {
  const columns = await readColumnSet(connection, table);
  await rescueTasks(connection, table, columns, { dead: [owner], ids: [id], blame: true, crashes: 3 });
};

const running = { state: "WORK", owner };

for (const [way, end] of [
  ["completed", complete],
  ["released", release],
  ["rescued", rescue],
] as const) {
  test(`a waiting task whose own schedule is ended while one with its key is ${way} inherits that one's`, async () => {
    const key = `ended ${way}`;
    const old = await insert({ ...running, key, repeat: "1 day" });
    const next = await insert({ key, plan: "2100-01-01Z", repeat: "2 days" });
    await user.query("BEGIN");
    await user.query("UPDATE task SET repeat = '0' WHERE id = $1", [next]);
    const ended = end(manager, old);
    await managerWaits();
    await user.query("COMMIT");
    await ended;
    const { rows } = await client.query("SELECT id, repeat::text FROM task WHERE key = $1 AND state = 'PLAN'", [key]);
    assert.deepEqual(rows, [{ id: next, repeat: "1 day" }]);
  });
}
