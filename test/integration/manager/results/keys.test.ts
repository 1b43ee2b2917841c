import assert from "node:assert/strict";
import { rescueTasks } from "../../../../src/manager/recovery/rescue.sql.js";
import { releaseTasks } from "../../../../src/manager/results/releaseTasks.sql.js";
import { changeRows } from "../../../../src/manager/sql/rejectedRows.js";
import { readColumnSet } from "../../../../src/manager/schema/columnSet.js";
import { waitingWithKey } from "../../../../src/manager/sql/keyWaits.sql.js";
import { backendPid } from "../../../../src/shared/postgres/client.js";
import { test } from "../../../support/limitedTest.js";
import { openTable } from "../../../support/taskTables.js";
import { eventually, insertTask, only } from "../../../support/tasks.js";

const { database, user: client, manager, table } = await openTable();
const columns = await readColumnSet(manager, table);
const owner = "2147483647 2001-01-01T00:00:00.000000";

const insert = (values: Readonly<Record<string, string | null>>): Promise<string> =>
  insertTask(client, "SELECT 1", values);

const running = (key: string | null, more: Readonly<Record<string, string>> = {}): Promise<string> =>
  insert({ key, state: "WORK", owner, ...more });
const waiting = (key: string, more: Readonly<Record<string, string>> = {}): Promise<string> =>
  insert({ key, plan: "2100-01-01Z", ...more });

interface Row {
  readonly state: string;
  readonly error: string | null;
  readonly owner: string | null;
  readonly repeat: string;
  readonly due: string | null;
}

async function row(id: string): Promise<Row> {
  const { rows } = await client.query<Row>(
    "SELECT state::text, error, owner, repeat::text, (due AT TIME ZONE 'UTC')::text AS due FROM task WHERE id = $1",
    [id],
  );
  return only(rows);
}

const takesPlace = (id: string): string => `ERROR:  task ${id} with the same key takes its place`;

const ways: readonly (readonly [string, (ids: readonly string[]) => Promise<unknown>])[] = [
  [
    "released",
    (ids) =>
      releaseTasks(
        manager,
        table,
        ids.map((id) => ({ id, owner })),
      ),
  ],
  ["rescued", (ids) => rescueTasks(manager, table, columns, { dead: [owner], ids, blame: false, crashes: 3 })],
];

for (const [way, put] of ways) {
  test(`a task that is ${way} becomes GONE if another one waits with its key, which inherits its schedule`, async () => {
    const key = `one ${way}`;
    const old = await running(key, { repeat: "1 day", plan: "2001-01-01Z" });
    const other = await running(`another ${way}`);
    const plain = await running(null);
    const next = await waiting(key);
    await put([old, other, plain]);
    assert.deepEqual(await row(old), {
      state: "GONE",
      error: takesPlace(next),
      owner: null,
      repeat: "1 day",
      due: null,
    });
    assert.deepEqual(await row(next), {
      state: "PLAN",
      error: null,
      owner: null,
      repeat: "1 day",
      due: "2001-01-01 00:00:00",
    });
    for (const id of [other, plain]) assert.deepEqual((await row(id)).state, "PLAN");
    const { rows: children } = await client.query<{ id: string }>("SELECT id FROM task WHERE parent = $1", [old]);
    assert.deepEqual(children, [{ id: next }]);
  });

  test(`a waiting task that repeats keeps its own schedule when one with its key is ${way}`, async () => {
    const key = `own ${way}`;
    const old = await running(key, { repeat: "1 day" });
    const next = await waiting(key, { repeat: "2 days" });
    await put([old]);
    assert.deepEqual([(await row(old)).state, (await row(next)).repeat], ["GONE", "2 days"]);
    const { rows: children } = await client.query<{ id: string }>("SELECT id FROM task WHERE parent = $1", [old]);
    assert.deepEqual(children, [{ id: next }]);
  });

  test(`of two tasks with one key that are ${way} together, one waits and the other is GONE`, async () => {
    const both = [await running(`both ${way}`), await running(`both ${way}`)];
    const rejected: unknown[] = [];
    const left = await changeRows(
      manager,
      both,
      async (some) => void (await put(some)),
      (_, error) => void rejected.push(error),
    );
    assert.deepEqual([left, rejected], [[], []]);
    const states = await Promise.all(both.map(async (id) => (await row(id)).state));
    assert.deepEqual(states.toSorted(), ["GONE", "PLAN"]);
  });

  test(`if another client inserts the key while a task is ${way}, the task becomes GONE`, async () => {
    const key = `late ${way}`;
    const old = await running(key);
    const producer = await database.connect();
    await producer.query("BEGIN");
    const { rows } = await producer.query<{ id: string }>(
      "INSERT INTO task (input, key, plan) VALUES ('SELECT 1', $1, 'infinity') RETURNING id",
      [key],
    );
    const done = changeRows(
      manager,
      [old],
      async (some) => void (await put(some)),
      () => assert.fail(),
    );
    // The statement waits for the producer's transaction, because the unique index has to know whether it commits.
    await eventually(client, `SELECT FROM pg_locks WHERE pid = ${backendPid(manager)} AND NOT granted`);
    await producer.query("COMMIT");
    await done;
    assert.deepEqual([(await row(old)).state, (await row(old)).error], ["GONE", takesPlace(only(rows).id)]);
  });
}

test("a task with a proof is DONE although another one waits with its key", async () => {
  const old = await running("proven", { repeat: "1 day", plan: "2001-01-01Z", take: "2001-01-01Z" });
  const next = await waiting("proven");
  await client.query(
    "INSERT INTO task_ledger_1 (id, take, running, start, stop) VALUES ($1, date_part('epoch', '2001-01-01Z'::timestamptz) * 1000000, true, now(), now())",
    [old],
  );
  await rescueTasks(manager, table, columns, { dead: [owner], ids: [old], blame: false, crashes: 3 });
  assert.deepEqual([(await row(old)).state, (await row(next)).repeat], ["DONE", "1 day"]);
});

test("waitingWithKey is the other task that waits with the key", async () => {
  const old = await running("asked");
  const find = async (): Promise<string | null> =>
    only(
      (
        await client.query<{ waiting: string | null }>(
          `SELECT ${waitingWithKey(table)} AS waiting FROM task AS t WHERE id = $1`,
          [old],
        )
      ).rows,
    ).waiting;
  assert.equal(await find(), null);
  const next = await waiting("asked");
  assert.equal(await find(), next);
});
