import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { LedgerRotation } from "../../../../src/manager/upkeep/ledgerRotation.js";
import { readColumnSet } from "../../../../src/manager/schema/columnSet.js";
import { completeFull } from "../../../../src/manager/results/completeFull.sql.js";
import { emptyLedger } from "../../../../src/manager/upkeep/emptyLedger.sql.js";
import { createLog } from "../../../../src/shared/log.js";
import { test } from "../../../support/limitedTest.js";
import { createComponents } from "../../../support/managerComponents.js";
import { projectPath } from "../../../support/project.js";
import { openTable } from "../../../support/taskTables.js";
import { only } from "../../../support/tasks.js";
import { claimTime } from "../../../../src/manager/sql/fragments.sql.js";
import { retryPolicy } from "../../../support/retryPolicy.js";

const { database, user, manager, table } = await openTable();
const lines: Record<string, unknown>[] = [];
const log = createLog({
  level: "debug",
  name: "test",
  write: (line) => void lines.push(JSON.parse(line)),
});
/** The identity of a backend that never existed. */
const nobody = "2147483647 2001-01-01T00:00:00.000000";

/** Inserts a task owned by a dead session. */
async function orphan(columns: Readonly<Record<string, string>> = {}): Promise<string> {
  const given = {
    input: "''",
    state: "'WORK'",
    owner: `'${nobody}'`,
    take: "now()",
    pid: "1",
    ...columns,
  };
  const { rows } = await manager.query<{ id: string }>(
    `INSERT INTO public.task (ready, start, ${Object.keys(given)
      .map((name) => `"${name}"`)
      .join(", ")}) VALUES (NULL, now(), ${Object.values(given).join(", ")}) RETURNING id`,
  );
  return only(rows).id;
}

/** Inserts the proof that the task's effect was committed. */
async function enter(id: string, ledger: 1 | 2, running = true): Promise<void> {
  await user.query(`INSERT INTO task_ledger_${ledger} SELECT id, ${claimTime("t")}, $2 FROM task AS t WHERE id = $1`, [
    id,
    running,
  ]);
}

/** Rescues all orphans, and returns how many. By default, each task is blamed for the end of its session. */
async function rescueAll(blame = true): Promise<number> {
  const { groups, orphans } = createComponents(database.target, {}, { log });
  const { rows } = await user.query<{ id: string; owner: string; hash: number }>(
    "SELECT id, owner, hash FROM task WHERE owner IS NOT NULL",
  );
  for (const owned of rows) {
    groups.addOrphan(owned.hash);
    orphans.add(owned);
  }
  if (!blame) orphans.clearBlame([]);
  return await orphans.check(manager, { crashes: 2, batch: 100, isKnown: () => true });
}

interface Row {
  readonly state: string;
  readonly crash: number;
  readonly output: string | null;
  readonly stopped: boolean;
  readonly owner: string | null;
}

async function row(id: string): Promise<Row> {
  const { rows } = await user.query<Row>(
    "SELECT state::text AS state, crash, output, stop IS NOT NULL AS stopped, owner FROM task WHERE id = $1",
    [id],
  );
  return only(rows);
}

async function children(id: string): Promise<number> {
  return (await user.query("SELECT FROM task WHERE parent = $1", [id])).rows.length;
}

test("a run with a proof in either ledger is DONE without output, and is not blamed", async () => {
  const ids = [await orphan(), await orphan({ delete: "true", state: "'TAKE'" }), await orphan()];
  const [first = "", second = "", third = ""] = ids;
  await enter(first, 1);
  await enter(second, 2);
  assert.equal(await rescueAll(), 3);
  const done = { state: "DONE", crash: 0, output: null, stopped: true, owner: null };
  assert.deepEqual(await row(first), done);
  assert.deepEqual(await row(second), done, "kept, though it says delete");
  assert.deepEqual(await row(third), {
    ...done,
    state: "PLAN",
    crash: 1,
    stopped: false,
  });
  const said = lines.filter(({ msg }) => msg === "orphaned tasks rescued");
  assert.deepEqual(
    said.map(({ tasks, ids: named }) => [tasks, named]),
    [
      [1, [third]],
      [2, [first, second]],
    ],
  );
});

test("the ledger row of an earlier run of the task proves nothing", async () => {
  const id = await orphan({ take: "'2020-01-01'" });
  await enter(id, 1);
  await manager.query("UPDATE public.task SET take = now() WHERE id = $1", [id]);
  await rescueAll(false);
  assert.equal((await row(id)).state, "PLAN");
});

test("a committed run repeats, and its group pauses, as after any run", async () => {
  const id = await orphan({ repeat: "'1 hour'", max: "-3600000", group: "'paused'" });
  await enter(id, 1);
  const { rows } = await user.query<{ id: string }>(
    `INSERT INTO task (input, max, "group") VALUES ('', -3600000, 'paused') RETURNING id`,
  );
  await rescueAll();
  assert.equal(await children(id), 1);
  const { rows: waiting } = await user.query(
    "SELECT ready, plan > now() + interval '50 minutes' AS later FROM task WHERE id = $1",
    [only(rows).id],
  );
  assert.deepEqual(waiting, [{ ready: false, later: true }]);
});

test("a task that ended its session too often is FAIL and logged with its id", async () => {
  const id = await orphan({ crash: "1" });
  const behind = await orphan({ crash: "1", state: "'TAKE'" });
  await rescueAll();
  assert.deepEqual([(await row(id)).state, (await row(id)).crash], ["FAIL", 2]);
  assert.deepEqual([(await row(behind)).state, (await row(behind)).crash], ["PLAN", 1]);
  const said = lines.filter(({ level, id: named }) => level === "warn" && named === id);
  assert.equal(said.length, 1);
  assert.equal(only(said)["crash"], 2);
});

/** Completes a run of the task, and returns what is in the row afterwards. */
async function completed(id: string, { committed = false, error = null as string | null }) {
  await completeFull(
    manager,
    table,
    await readColumnSet(manager, table),
    [
      {
        outcome: "ended",
        session: 1,
        id,
        owner: nobody,
        start: "2001-01-01T00:00:00Z",
        stop: "2001-01-01T00:00:01Z",
        output: error === null ? "said" : "",
        error,
        sqlstate: null,
        committed,
      },
    ],
    { retry: retryPolicy },
  );
  const { rows } = await user.query<{ said: (string | null)[] }>(
    "SELECT ARRAY[state::text, output, error] AS said FROM task WHERE id = $1 AND owner IS NULL",
    [id],
  );
  return only(rows).said;
}

test("of states set after the commit only PLAN remains, and runs again", async () => {
  for (const state of ["STOP", "FAIL", "GONE"]) {
    const told = await orphan({ state: `'${state}'`, repeat: "'1 hour'" });
    assert.deepEqual(await completed(told, { committed: true }), ["DONE", "said", null], state);
    const found = await orphan({ state: `'${state}'`, repeat: "'1 hour'" });
    await enter(found, 1);
    await rescueAll();
    assert.equal((await row(found)).state, "DONE", state);
    for (const id of [told, found]) assert.equal(await children(id), 0);
  }
  const done = await orphan({ state: "'DONE'" });
  assert.deepEqual(await completed(done, { committed: true }), ["DONE", "said", null]);
  const planned = await orphan({ state: "'PLAN'" });
  assert.deepEqual(await completed(planned, { committed: true }), ["PLAN", null, null]);
  const found = await orphan({ state: "'PLAN'" });
  await enter(found, 1);
  await rescueAll();
  const { rows } = await user.query("SELECT state::text, ready, pid, take, start FROM task WHERE id = ANY ($1)", [
    [planned, found],
  ]);
  const again = { state: "PLAN", ready: true, pid: null, take: null, start: null };
  assert.deepEqual(rows, [again, again]);
});

test("a state set before the commit stays, however the run or its session ends", async () => {
  for (const state of ["STOP", "FAIL", "GONE", "DONE"]) {
    const told = await orphan({ state: `'${state}'` });
    const ends = ["STOP", "FAIL"].includes(state) ? ["", "ERROR:  x"] : [null, null];
    assert.deepEqual(await completed(told, { error: "ERROR:  x" }), [state, ...ends]);
    const succeeded = await orphan({ state: `'${state}'` });
    assert.deepEqual(await completed(succeeded, {}), [state, "said", null]);
    const found = await orphan({ state: `'${state}'` });
    await rescueAll();
    assert.equal((await row(found)).state, state);
  }
});

test("a state that the task itself has set stays, and its pid is positive again", async () => {
  for (const state of ["STOP", "FAIL", "GONE", "DONE"]) {
    const told = await orphan({ state: `'${state}'`, pid: "-5" });
    assert.deepEqual(await completed(told, {}), [state, "said", null]);
    const failed = await orphan({ state: `'${state}'`, pid: "-5" });
    assert.deepEqual(await completed(failed, { error: "ERROR:  x" }), [state, "", "ERROR:  x"]);
    const found = await orphan({ state: `'${state}'`, pid: "-5" });
    await enter(found, 1, false);
    await rescueAll();
    const { rows } = await user.query("SELECT DISTINCT state::text, pid FROM task WHERE id = ANY ($1)", [
      [told, failed, found],
    ]);
    assert.deepEqual(rows, [{ state, pid: 5 }]);
  }
});

async function entered(): Promise<{ ledger: number; id: string }[]> {
  const { rows } = await user.query<{ ledger: number; id: string }>(
    "SELECT 1 AS ledger, id FROM task_ledger_1 UNION ALL SELECT 2, id FROM task_ledger_2 ORDER BY 1, 2",
  );
  return rows;
}

test("emptying a ledger moves rows of tasks that still have an owner to the other one, also with a key of the user", async () => {
  await user.query("TRUNCATE task_ledger_1, task_ledger_2; TRUNCATE task");
  const [, key = ""] =
    /^(ALTER TABLE task_ledger_1[^`]*)/m.exec(await readFile(projectPath("docs/managed-services.md"), "utf8")) ?? [];
  await user.query(key);
  const [owned, ended, gone] = [await orphan(), await orphan(), await orphan()];
  for (const id of [owned, ended, gone]) await enter(id, 1);
  await user.query("DELETE FROM task WHERE id = $1", [gone]);
  await manager.query("UPDATE public.task SET owner = NULL, state = 'DONE' WHERE id = $1", [ended]);
  await emptyLedger(manager, table, 1);
  assert.deepEqual(await entered(), [{ ledger: 2, id: owned }]);
  await emptyLedger(manager, table, 2);
  assert.deepEqual(await entered(), [{ ledger: 1, id: owned }]);
  await rescueAll();
  assert.equal((await row(owned)).state, "DONE");
  const { rows } = await user.query(
    "SELECT FROM pg_index WHERE indisprimary AND indrelid::regclass::text LIKE 'task_ledger%'",
  );
  assert.equal(rows.length, 2);
  await user.query("ALTER TABLE task_ledger_1 DROP COLUMN key; ALTER TABLE task_ledger_2 DROP COLUMN key");
});

test("a ledger is not emptied, and nobody waits, while a run writes its proof or the table is locked", async () => {
  const limits = { runs: 1, ms: 1e9, settleMs: 0 };
  const ledgers = new LedgerRotation({ table, log, limits });
  const first = ledgers.countRun();
  assert.equal(first, 1);
  const id = await orphan();
  await user.query("INSERT INTO task_ledger_2 VALUES ($1, 0, true)", [id]);
  await user.query("BEGIN");
  await user.query("INSERT INTO task_ledger_2 VALUES ($1, 1, true)", [id]);
  await ledgers.rotate(manager);
  assert.equal(ledgers.countRun(), 1, "the other one is in use still");
  await user.query("ROLLBACK");
  await user.query("BEGIN");
  await user.query("LOCK TABLE task IN ACCESS EXCLUSIVE MODE");
  await assert.rejects(emptyLedger(manager, table, 2), { code: "55P03" });
  await user.query("ROLLBACK");
  assert.equal(await emptyLedger(manager, table, 2), true);
  assert.equal(await emptyLedger(manager, table, 2), false);
});

test("ledgers alternate, and each is emptied before it is used again", async () => {
  await user.query("TRUNCATE task_ledger_1, task_ledger_2");
  const limits = { runs: 3, ms: 1e9, settleMs: 0 };
  const ledgers = new LedgerRotation({ table, log, limits });
  const used: number[] = [];
  for (let run = 0; run < 12; run += 1) {
    const ledger = ledgers.countRun();
    used.push(ledger);
    await user.query(`INSERT INTO task_ledger_${ledger} VALUES ($1, 1, true)`, [run]);
    await ledgers.rotate(manager);
  }
  assert.deepEqual(used, [1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2]);
  assert.ok((await entered()).every(({ id }) => Number(id) >= 6));
});

test("a remote task that had not started, or needs no query, is set to PLAN at once", async () => {
  await user.query("TRUNCATE task_ledger_1, task_ledger_2; TRUNCATE task");
  const ids = [
    await orphan({ remote: "'host=127.0.0.1 port=1'" }),
    await orphan({ remote: "'host=127.0.0.1 port=1'" }),
  ];
  await user.query(
    `INSERT INTO task_ledger_2 (id, take, running, place) SELECT id, ${claimTime("t")}, false, '' FROM task AS t WHERE id = $1`,
    [ids[1]],
  );
  assert.equal(await rescueAll(false), 2);
  for (const id of ids) assert.equal((await row(id)).state, "PLAN");
});
