import assert from "node:assert/strict";
import type { QueryConfig } from "pg";
import { OwedSuccessors } from "../../../../src/manager/upkeep/owedSuccessors.js";
import { endUnrun } from "../../../../src/manager/groups/endUnrun.sql.js";
import { planOverlapping } from "../../../../src/manager/claim/planOverlapping.sql.js";
import { expireTasks } from "../../../../src/manager/groups/expireTasks.js";
import type { OwnedResult } from "../../../../src/manager/model/tasks.js";
import { RejectedRows } from "../../../../src/manager/sql/rejectedRows.js";
import { rescueTasks } from "../../../../src/manager/recovery/rescue.sql.js";
import { completeFull } from "../../../../src/manager/results/completeFull.sql.js";
import { releaseTasks } from "../../../../src/manager/results/releaseTasks.sql.js";
import { readColumnSet } from "../../../../src/manager/schema/columnSet.js";
import { createLog } from "../../../../src/shared/log.js";
import { backendPid, type Client } from "../../../../src/shared/postgres/client.js";
import { test } from "../../../support/limitedTest.js";
import { retryPolicy } from "../../../support/retryPolicy.js";
import { openTable } from "../../../support/taskTables.js";
import { eventually, insertTask, valueOf } from "../../../support/tasks.js";

const { database, user: client, manager, table } = await openTable();
const user = await database.connect();
const managerPid = backendPid(manager);
const owner = "2147483647 2001-01-01T00:00:00.000000";

/** The group hashes of the inserted tasks, by id. */
const hashes = new Map<string, number>();

async function insert(values: Readonly<Record<string, string | null>>): Promise<string> {
  const id = await insertTask(client, "SELECT 1", values);
  hashes.set(id, await valueOf<number>(client, "SELECT hash FROM task WHERE id = $1", [id]));
  return id;
}

/** Waits until the manager's statement waits for the user's transaction. */
const managerWaits = () => eventually(client, `SELECT FROM pg_locks WHERE pid = ${managerPid} AND NOT granted`);

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

const log = createLog({ level: "silent", name: "test", write: () => {} });
const rejectedRows = new RejectedRows(log);

const owed = new OwedSuccessors({ table, log });
const expire: Way = async (connection, id) => {
  await expireTasks(connection, table, [hashes.get(id) ?? 0], 10, { except: [], rejectedRows, owed });
};

const fail: Way = async (connection, id) =>
  await endUnrun(connection, table, await readColumnSet(connection, table), [id], { failed: "test" });

const overlap: Way = async (connection, id) => {
  await planOverlapping(connection, table, await readColumnSet(connection, table), [{ id, owner }]);
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

/** The manager's connection. Before its first statement whose name begins with `name`, `change` is executed. */
function changedBefore(name: string, change: string): Client {
  let isChanged = false;
  const query = async (statement: string | QueryConfig, values?: unknown[]): Promise<unknown> => {
    if (typeof statement === "string") return await manager.query(statement, values);
    if (!isChanged && statement.name?.startsWith(name) === true) {
      isChanged = true;
      await user.query(change);
    }
    return await manager.query(statement);
  };
  return new Proxy(manager, { get: (target, key) => (key === "query" ? query : Reflect.get(target, key, target)) });
}

for (const [what, statement, values, end, outcome] of [
  ["expires", "expire", { plan: "2001-01-01Z" }, expire, "GONE"],
  ["is not readable", "fail unrun", {}, fail, "FAIL"],
  ["has ended its session too often", "rescue", { ...running, crash: "2" }, rescue, "FAIL"],
] as const) {
  test(`the successor of a task that ${what} while a column is added has the value of that column`, async () => {
    const column = `own_${statement.replaceAll(" ", "_")}`;
    const id = await insert({ repeat: "1 day", group: what, ...values });
    const add = `ALTER TABLE task ADD COLUMN ${column} text; UPDATE task SET ${column} = 'mine';
      ALTER TABLE task ALTER COLUMN ${column} SET NOT NULL`;
    await end(changedBefore(statement, add), id);
    await end(manager, id);
    await client.query(`ALTER TABLE task ALTER COLUMN ${column} DROP NOT NULL`);
    const { rows } = await client.query(
      `SELECT state::text, ${column} AS own, repeat::text FROM task WHERE "group" = $1 ORDER BY id`,
      [what],
    );
    assert.deepEqual(rows, [
      { state: outcome, own: "mine", repeat: "1 day" },
      { state: "PLAN", own: "mine", repeat: "1 day" },
    ]);
  });
}

for (const [what, values, end] of [
  ["is completed", running, complete],
  ["is released", running, release],
  ["has ended its session too often", { ...running, crash: "2" }, rescue],
  ["expires", { plan: "2001-01-01Z" }, expire],
  ["is not readable", {}, fail],
  ["starts and overlaps", { ...running, overlap: "true" }, overlap],
] as const) {
  test(`a change of a schedule counts if it is committed before the row of a task that ${what} is locked`, async () => {
    const key = `changed ${what}`;
    const id = await insert({ repeat: "1 day", key, group: key, ...values });
    const before = await insert({ repeat: "1 day", group: `before ${key}`, ...values });
    // A task that is released passes its schedule to this one.
    if (end === release) await insert({ key, group: key, plan: "2100-01-01Z" });
    // With a plan made before, the statement takes its snapshot, and then waits for the index.
    await manager.query("SET plan_cache_mode = force_generic_plan");
    await end(manager, before);
    await user.query("BEGIN");
    await user.query("UPDATE task SET repeat = '2 days' WHERE id = $1", [id]);
    await user.query("ALTER INDEX task_pkey SET TABLESPACE pg_default");
    const ended = end(manager, id);
    await managerWaits();
    await user.query("COMMIT");
    await ended;
    await end(manager, id);
    const { rows } = await client.query(`SELECT repeat::text FROM task WHERE "group" = $1 AND state = 'PLAN'`, [key]);
    assert.deepEqual(rows, [{ repeat: "2 days" }]);
  });
}
