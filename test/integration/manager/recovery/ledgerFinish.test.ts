import assert from "node:assert/strict";
import { describe } from "node:test";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { sqlState, type Client } from "../../../../src/shared/postgres/client.js";
import { test } from "../../../support/limitedTest.js";
import { ensureTaskTable, openTable } from "../../../support/taskTables.js";
import { only } from "../../../support/tasks.js";

const { database, user, manager } = await openTable();
await user.query(`
  CREATE SCHEMA parts; CREATE TYPE parts.state AS ENUM ('PLAN');
  CREATE TABLE parts.task (id bigserial, input text NOT NULL, plan timestamptz NOT NULL DEFAULT now(),
    state parts.state NOT NULL DEFAULT 'PLAN', PRIMARY KEY (id, plan)) PARTITION BY RANGE (plan);
  CREATE TABLE parts.early PARTITION OF parts.task FOR VALUES FROM (MINVALUE) TO ('2020-01-01');
  CREATE TABLE parts.late PARTITION OF parts.task FOR VALUES FROM ('2020-01-01') TO (MAXVALUE)`);
await ensureTaskTable(database.target, { schema: "parts" });

const lyingOperators = (type: string): string =>
  `CREATE FUNCTION lie(${type}, ${type}) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'hostile'; END$$;
   CREATE OPERATOR = (FUNCTION = lie, LEFTARG = ${type}, RIGHTARG = ${type});
   CREATE OPERATOR <> (FUNCTION = lie, LEFTARG = ${type}, RIGHTARG = ${type});
   CREATE OPERATOR ~ (FUNCTION = lie, LEFTARG = ${type}, RIGHTARG = ${type});`;

const holder = "1 2001-01-01T00:00:00.000000";

for (const schema of ["public", "parts"]) {
  const { qualified, qualifiedFinish, qualifiedLedger1, qualifiedLedger2 } = taskTable(schema, "task");

  /** Inserts a running task, and begins its run's transaction in a session. Returns the task's id and the session. */
  async function begin(how = "BEGIN"): Promise<{ id: string; session: Client }> {
    const { rows } = await manager.query<{ id: string }>(
      `INSERT INTO ${qualified} (input, state, owner, ready) VALUES ('', 'WORK', $1, NULL) RETURNING id`,
      [holder],
    );
    const { id } = only(rows);
    const session = await database.connect();
    await session.query("SELECT set_config('pg_task.id', $1, false)", [id]);
    await session.query(how);
    await session.query("SELECT txid_current()");
    return { id, session };
  }

  async function finish(session: Client, id: string, ledger: 1 | 2 = 1): Promise<boolean> {
    const { rows } = await session.query<{ finish: boolean }>(`SELECT ${qualifiedFinish}($1, 7, $2, $3) AS finish`, [
      id,
      holder,
      ledger,
    ]);
    return only(rows).finish;
  }

  async function entries(id: string): Promise<unknown[]> {
    const { rows } = await user.query(
      `SELECT 1 AS ledger, take, running FROM ${qualifiedLedger1} WHERE id = $1
       UNION ALL SELECT 2, take, running FROM ${qualifiedLedger2} WHERE id = $1`,
      [id],
    );
    return rows;
  }

  const others = (id: string): Promise<unknown> =>
    user.query(`UPDATE ${qualified} SET state = 'STOP' WHERE id = $1`, [id]);

  describe(`a run of ${qualified}`, () => {
    test("writes its proof to its ledger, in its own transaction", async () => {
      for (const ledger of [1, 2] as const) {
        const { id, session } = await begin();
        assert.equal(await finish(session, id, ledger), true);
        assert.deepEqual(await entries(id), []);
        await session.query("COMMIT");
        assert.deepEqual(await entries(id), [{ ledger, take: "7", running: true }]);
      }
    });

    const undone: Record<string, (id: string, session: Client) => Promise<unknown>> = {
      "was stopped by somebody else": (id) => others(id),
      ...Object.fromEntries(
        ["PLAN", "FAIL", "GONE", "DONE"].map((state) => [
          `was set to ${state} by somebody else`,
          (id: string) => user.query(`UPDATE ${qualified} SET state = '${state}' WHERE id = $1`, [id]),
        ]),
      ),
      "was stopped by somebody else, who calls itself the task": async (id) => {
        await manager.query(`UPDATE ${qualified} SET pid = 1 WHERE id = $1`, [id]);
        await user.query("SELECT set_config('pg_task.id', $1, false)", [id]);
        await others(id);
        await user.query("RESET pg_task.id");
      },
      "was stopped by somebody else and deletes itself": async (id, session) => {
        await others(id);
        await session.query(`DELETE FROM ${qualified} WHERE id = $1`, [id]);
      },
      "was stopped by somebody else and then changed by itself": async (id, session) => {
        await others(id);
        await session.query(`UPDATE ${qualified} SET data = 'mine' WHERE id = $1`, [id]);
      },
      "was stopped by somebody else, which it says again": async (id, session) => {
        await others(id);
        await session.query(`UPDATE ${qualified} SET state = 'STOP' WHERE id = $1`, [id]);
      },
      "was deleted by somebody else": (id) => user.query(`DELETE FROM ${qualified} WHERE id = $1`, [id]),
      "was deleted by somebody else and deletes another": async (id, session) => {
        await user.query(`DELETE FROM ${qualified} WHERE id = $1`, [id]);
        await session.query(`DELETE FROM ${qualified} WHERE id < $1`, [id]);
      },
      "is another session's by now": (id) => manager.query(`UPDATE ${qualified} SET owner = '2 x' WHERE id = $1`, [id]),
      "was rescued": (id) => manager.query(`UPDATE ${qualified} SET owner = NULL, state = 'PLAN' WHERE id = $1`, [id]),
      "stopped itself in a savepoint that it rolled back, and is stopped by somebody else": async (id, session) => {
        await session.query(`SAVEPOINT a; UPDATE ${qualified} SET state = 'STOP' WHERE id = ${id}; ROLLBACK TO a`);
        await others(id);
      },
      "set itself to DONE, committed that, and is stopped by somebody else": async (id, session) => {
        await session.query(
          `UPDATE ${qualified} SET state = 'DONE' WHERE id = ${id}; COMMIT; BEGIN; SELECT txid_current()`,
        );
        await others(id);
      },
      "deleted itself in a savepoint that it rolled back, and is deleted by somebody else": async (id, session) => {
        await session.query(`SAVEPOINT a; DELETE FROM ${qualified} WHERE id = ${id}; ROLLBACK TO a`);
        await user.query(`DELETE FROM ${qualified} WHERE id = $1`, [id]);
      },
    };
    for (const [what, work] of Object.entries(undone)) {
      test(`has no effect when it ${what}`, async () => {
        const { id, session } = await begin();
        await work(id, session);
        const error = await finish(session, id).catch((reason: unknown) => reason);
        assert.equal(sqlState(error), "PGT01");
        const state = /set to (\w+) by/.exec(what)?.[1];
        if (state !== undefined) assert.match(String(error), new RegExp(`task was set to ${state} while it ran`));
        await session.query("COMMIT");
        assert.deepEqual(await entries(id), []);
      });
    }

    test("cannot change its state after another session has set it", async () => {
      for (const state of ["WORK", "PLAN", "DONE"]) {
        const { id, session } = await begin();
        await others(id);
        const change = `UPDATE ${qualified} SET state = '${state}' WHERE id = ${id}`;
        await assert.rejects(session.query(change), {
          code: "PGT01",
          message: "task was set to STOP while it ran",
        });
        await session.query("ROLLBACK; BEGIN; SELECT txid_current()");
        await session.query(`DO $$ BEGIN ${change}; EXCEPTION WHEN OTHERS THEN NULL; END $$`);
        await assert.rejects(finish(session, id), { code: "PGT01" });
        await session.query("ROLLBACK");
      }
    });

    const own: Record<string, string> = {
      ...Object.fromEntries(
        ["FAIL", "GONE", "DONE"].map((state) => [
          `sets itself to ${state}`,
          `UPDATE ${qualified} SET state = '${state}' WHERE id = ID`,
        ]),
      ),
      "sets itself to one state after another": `UPDATE ${qualified} SET state = 'STOP' WHERE id = ID; UPDATE ${qualified} SET state = 'PLAN' WHERE id = ID`,
      "stops itself, and in a savepoint that it rolls back something else": `UPDATE ${qualified} SET state = 'STOP' WHERE id = ID;
        SAVEPOINT a; UPDATE ${qualified} SET state = 'WORK' WHERE id = ID; ROLLBACK TO a`,
      "stops and then deletes itself": `UPDATE ${qualified} SET state = 'STOP' WHERE id = ID; DELETE FROM ${qualified} WHERE id = ID`,
      "stops itself and commits that": `UPDATE ${qualified} SET state = 'STOP' WHERE id = ID; COMMIT; BEGIN; SELECT txid_current()`,
      "stops itself": `UPDATE ${qualified} SET state = 'STOP' WHERE id = ID`,
      "stops itself in a savepoint": `SAVEPOINT a; UPDATE ${qualified} SET state = 'STOP' WHERE id = ID; RELEASE a`,
      "stops itself in a block with a handler": `DO $$ BEGIN UPDATE ${qualified} SET state = 'STOP' WHERE id = ID; EXCEPTION WHEN OTHERS THEN NULL; END $$`,
      "plans itself anew": `UPDATE ${qualified} SET state = 'PLAN' WHERE id = ID`,
      "deletes itself": `DELETE FROM ${qualified} WHERE id = ID`,
      "deletes itself in a savepoint": `SAVEPOINT a; DELETE FROM ${qualified} WHERE id = ID; RELEASE a`,
      "deletes itself and others": `DELETE FROM ${qualified}`,
      "empties the table": `TRUNCATE ${qualified}`,
    };
    for (const [what, sql] of Object.entries(own)) {
      test(`has its effect when it ${what}, and reports that its row is no longer in WORK`, async () => {
        const { id, session } = await begin();
        await session.query(sql.replaceAll("ID", id));
        assert.equal(await finish(session, id), false);
        await session.query("COMMIT");
        assert.deepEqual(await entries(id), [{ ledger: 1, take: "7", running: false }]);
      });
    }

    const harmless: Record<string, string> = {
      "changes its own row's data": `SAVEPOINT a; UPDATE ${qualified} SET data = 'x' WHERE id = ID; RELEASE a`,
      "restores its state": `UPDATE ${qualified} SET state = 'STOP' WHERE id = ID; UPDATE ${qualified} SET state = 'WORK' WHERE id = ID`,
      "stops and deletes other tasks": `UPDATE ${qualified} SET state = 'STOP' WHERE id < ID; DELETE FROM ${qualified} WHERE id < ID`,
    };
    for (const [what, sql] of Object.entries(harmless)) {
      test(`ends normally when it ${what}`, async () => {
        const { id, session } = await begin();
        await session.query(sql.replaceAll("ID", id));
        assert.equal(await finish(session, id), true);
        await session.query("COMMIT");
        assert.equal((await entries(id)).length, 1);
      });
    }

    test("has its effect when it changes the states of other running tasks", async () => {
      const other = await begin();
      const { id, session } = await begin();
      await session.query(`UPDATE ${qualified} SET state = 'DONE' WHERE id IN (${id}, ${other.id})`);
      assert.equal(await finish(session, id), false);
      await session.query("COMMIT");
      await assert.rejects(finish(other.session, other.id), { code: "PGT01" });
      await other.session.query("ROLLBACK");
    });

    test("writes no proof in a read-only transaction", async () => {
      const { id, session } = await begin("BEGIN READ ONLY");
      await assert.rejects(finish(session, id), { code: "25006" });
      await session.query("ROLLBACK");
    });

    test("writes its proof whatever the task puts before pg_catalog in its search_path", async () => {
      const { id, session } = await begin();
      const types = ["text", "int8", "int4", "oid"].map((type) => `pg_catalog.${type}`);
      await session.query(
        `CREATE SCHEMA hostile_${schema}; SET LOCAL search_path = hostile_${schema}, pg_catalog;
         ${types.map(lyingOperators).join("\n")}
         CREATE FUNCTION concat(oid, text) RETURNS text LANGUAGE sql AS $$SELECT 'hostile'$$;
         CREATE FUNCTION concat(oid, text, bigint) RETURNS text LANGUAGE sql AS $$SELECT 'hostile'$$;
         CREATE FUNCTION current_setting(text, boolean) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE 'hostile'; END$$;
         CREATE FUNCTION set_config(text, text, boolean) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE 'hostile'; END$$;
         CREATE FUNCTION pg_try_advisory_lock_shared(int, int) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'hostile'; END$$;
         CREATE FUNCTION pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'hostile'; END$$;
         CREATE FUNCTION pg_partition_root(regclass) RETURNS regclass LANGUAGE plpgsql AS $$BEGIN RAISE 'hostile'; END$$;
         CREATE DOMAIN text AS pg_catalog.int4; CREATE DOMAIN oid AS pg_catalog.int4; CREATE DOMAIN int8 AS pg_catalog.int4;
         CREATE TABLE task (id bigint); CREATE TABLE task_ledger_1 (id bigint)`,
      );
      await session.query(`UPDATE ${qualified} SET state = 'STOP' WHERE id OPERATOR(pg_catalog.=) ${id}`);
      const { rows } = await session.query<{ finish: boolean }>(
        `SELECT ${qualifiedFinish}(${id}, 7, '${holder}', 2) AS finish`,
      );
      assert.equal(only(rows).finish, false);
      await session.query("COMMIT");
      assert.deepEqual(await entries(id), [{ ledger: 2, take: "7", running: false }]);
      await user.query(`DROP SCHEMA hostile_${schema} CASCADE`);
    });

    test("writes its proof under REPEATABLE READ and SERIALIZABLE", async () => {
      for (const level of ["REPEATABLE READ", "SERIALIZABLE"]) {
        const { id, session } = await begin(`BEGIN ISOLATION LEVEL ${level}`);
        assert.equal(await finish(session, id), true);
        await session.query("COMMIT");
        assert.equal((await entries(id)).length, 1);
      }
    });
  });
}

test("the trigger that notices a task's own deletion exists on later partitions too", async () => {
  await user.query(
    `CREATE TABLE parts.split (LIKE parts.late INCLUDING ALL);
     ALTER TABLE parts.task DETACH PARTITION parts.late;
     ALTER TABLE parts.task ATTACH PARTITION parts.split FOR VALUES FROM ('2020-01-01') TO (MAXVALUE)`,
  );
  const { rows } = await manager.query<{ id: string }>(
    `INSERT INTO parts.task (input, state, owner, ready) VALUES ('', 'WORK', $1, NULL) RETURNING id`,
    [holder],
  );
  const { id } = only(rows);
  const session = await database.connect();
  await session.query("SELECT set_config('pg_task.id', $1, false)", [id]);
  await session.query("BEGIN");
  await session.query("DELETE FROM parts.split WHERE id = $1", [id]);
  const { rows: finished } = await session.query("SELECT parts.task_finish($1, 7, $2, 1) AS f", [id, holder]);
  assert.deepEqual(finished, [{ f: false }]);
  await session.query("COMMIT");
});
