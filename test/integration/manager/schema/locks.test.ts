import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { connectManager } from "../../../../src/manager/loop/connectManager.js";
import { ensureTable } from "../../../../src/manager/schema/ensureTable.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { backendPid } from "../../../../src/shared/postgres/client.js";
import { createDatabase } from "../../../support/database.js";
import { ensureTaskTable, makeEntry, silentLog } from "../../../support/taskTables.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();
const producer = await database.connect();

/** Returns everything in the catalog that a change of the schema's table would change. */
async function catalog(schema: string): Promise<unknown> {
  const { rows } = await client.query(
    `SELECT json_build_array(
       (SELECT json_agg(json_build_array(c.oid, c.xmin::text, c.relname) ORDER BY c.oid) FROM pg_class c
        WHERE c.relnamespace = $1::regnamespace),
       (SELECT json_agg(json_build_array(d.oid, d.xmin::text) ORDER BY d.oid) FROM pg_attrdef d
        JOIN pg_class c ON c.oid = d.adrelid WHERE c.relnamespace = $1::regnamespace),
       (SELECT json_agg(json_build_array(t.oid, t.xmin::text) ORDER BY t.oid) FROM pg_trigger t
        JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = $1::regnamespace),
       (SELECT json_agg(json_build_array(p.oid, p.xmin::text) ORDER BY p.oid) FROM pg_proc p
        WHERE p.pronamespace = $1::regnamespace),
       (SELECT json_agg(json_build_array(d.objoid, d.xmin::text, d.objsubid) ORDER BY d.objoid, d.objsubid)
        FROM pg_description d)
     ) AS everything`,
    [schema],
  );
  return rows[0].everything;
}

async function whileProducing<T>(qualified: string, work: () => Promise<T>): Promise<T> {
  await producer.query("BEGIN");
  await producer.query(`INSERT INTO ${qualified} (input) VALUES ('SELECT 1')`);
  try {
    return await work();
  } finally {
    await producer.query("COMMIT");
  }
}

/** Returns the locks on the table that the transaction of `ensureTable` takes. */
async function locksOfEnsuring(schema: string): Promise<string[]> {
  let pid: number | null = null;
  const locks: string[] = [];
  await ensureTaskTable(
    target,
    { schema },
    {
      connected: async (manager) => (pid = backendPid(manager)),
      before: async (text) => {
        if (text !== "COMMIT") return;
        const { rows } = await client.query<{ mode: string }>(
          "SELECT mode FROM pg_locks WHERE pid = $1 AND relation = $2::regclass",
          [pid, `${schema}.task`],
        );
        locks.push(...rows.map(({ mode }) => mode));
      },
    },
  );
  return locks;
}

describe("an up-to-date table", () => {
  test("is not changed", async () => {
    await ensureTaskTable(target, { schema: "same" });
    const before = await catalog("same");
    await ensureTaskTable(target, { schema: "same" });
    assert.deepEqual(await catalog("same"), before);
  });

  test("is not locked against writers", async () => {
    await ensureTaskTable(target, { schema: "unlocked" });
    const locks = await locksOfEnsuring("unlocked");
    assert.deepEqual(
      locks.filter((mode) => mode !== "AccessShareLock"),
      [],
    );
  });

  test("is recognized while a producer's transaction is open", async () => {
    const { qualified } = await ensureTaskTable(target, { schema: "busy" });
    await whileProducing(qualified, () => ensureTaskTable(target, { schema: "busy" }));
  });
});

async function isAwaited(qualified: string): Promise<boolean> {
  const { rowCount } = await client.query(
    `SELECT FROM pg_locks
     WHERE relation = $1::regclass AND mode = 'AccessExclusiveLock' AND NOT granted
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    [qualified],
  );
  return rowCount !== 0;
}

describe("a table that has to change while a producer's transaction is open", () => {
  const changed = { schema: "long", parameters: { "pg_task.max": 3, "pg_task.plan": "now()" } };

  test("fails with SCHEMA_LOCKED, lets other producers continue, and is changed later", async () => {
    const { qualified } = await ensureTaskTable(target, { schema: "long" });
    await whileProducing(qualified, async () => {
      const ensuring = assert.rejects(ensureTaskTable(target, changed), { code: "SCHEMA_LOCKED" });
      const { rowCount } = await client.query(`INSERT INTO ${qualified} (input) VALUES ('beside it')`);
      assert.equal(rowCount, 1);
      await ensuring;
      await client.query(`INSERT INTO ${qualified} (input) VALUES ('after it')`);
    });
    await ensureTaskTable(target, changed);
    const { rows } = await client.query(`INSERT INTO ${qualified} (input) VALUES ('') RETURNING max`);
    assert.deepEqual(rows, [{ max: 3 }]);
  });

  test("delays a producer queued behind the change no longer than the lock timeout", async () => {
    const { qualified } = await ensureTaskTable(target, { schema: "queue" });
    const inserting = await database.connect();
    await whileProducing(qualified, async () => {
      const ended = new AbortController();
      const ensuring = assert
        .rejects(ensureTaskTable(target, { ...changed, schema: "queue" }), {
          code: "SCHEMA_LOCKED",
        })
        .finally(() => ended.abort());
      while (!ended.signal.aborted && !(await isAwaited(qualified))) continue;
      const insert = inserting.query(`INSERT INTO ${qualified} (input) VALUES ('queued')`);
      // The second producer's insert ends although the first producer's transaction is still open.
      assert.equal((await insert).rowCount, 1);
      await ensuring;
      const { rows } = await client.query("SELECT state FROM pg_stat_activity WHERE pid = $1", [backendPid(inserting)]);
      assert.deepEqual(rows, [{ state: "idle" }]);
    });
  });

  test("is unchanged after a failed change", async () => {
    const { qualified } = await ensureTaskTable(target, { schema: "kept" });
    const before = await catalog("kept");
    await whileProducing(qualified, () =>
      assert.rejects(ensureTaskTable(target, { ...changed, schema: "kept" }), {
        code: "SCHEMA_LOCKED",
      }),
    );
    assert.deepEqual(await catalog("kept"), before);
  });
});

test("a connection can be used for the next attempt after a lock timeout", async () => {
  const { qualified } = await ensureTaskTable(target, { schema: "again" });
  const entry = makeEntry(target, { schema: "again", parameters: { "pg_task.max": 1 } });
  const manager = await connectManager(entry);
  const table = taskTable("again", "task");
  await whileProducing(qualified, () =>
    assert.rejects(ensureTable(manager, table, entry, silentLog), { code: "SCHEMA_LOCKED" }),
  );
  await ensureTable(manager, table, entry, silentLog);
  const { rows } = await manager.query("SELECT current_setting('lock_timeout') AS timeout");
  await manager.end();
  assert.deepEqual(rows, [{ timeout: "1s" }]);
});
