import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import { claimFull } from "../../../../src/manager/claim/claimFull.sql.js";
import { claimSmall, type SmallClaim, type SmallClaimRequest } from "../../../../src/manager/claim/claimSmall.sql.js";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import { readSettingsVersion } from "../../../../src/manager/sessions/settingsVersion.sql.js";
import { claimOf } from "../../../support/claims.js";
import { test } from "../../../support/limitedTest.js";
import { openTable } from "../../../support/taskTables.js";
import { maxSmallClaim } from "../../../../src/manager/model/tuning.js";

const { database, user, manager, table } = await openTable();
const sessions = Array.from({ length: maxSmallClaim }, (_, n) => ({ owner: `owner ${n}`, pid: 1000 + n }));

beforeEach(async () => {
  await user.query("TRUNCATE task, task_pause RESTART IDENTITY");
});

async function claim(options: Partial<SmallClaimRequest> = {}): Promise<SmallClaim> {
  const usual = { sessions, unreserved: sessions.length, groups: [], except: [], runningKeys: [], traced: false };
  return await claimSmall(manager, table, { ...usual, ...options });
}

const ids = (tasks: readonly { readonly id: string }[]): string[] => tasks.map(({ id }) => id);

/** Returns the hash of the group of this task. */
async function hashOf(id: string): Promise<number> {
  const { rows } = await user.query<{ hash: number }>("SELECT hash FROM task WHERE id = $1", [id]);
  return rows[0]?.hash ?? assert.fail(`no task ${id}`);
}

/** Returns id, state and owner of all rows, as one text. */
async function owners(): Promise<string> {
  const { rows } = await user.query<{ text: string }>(
    "SELECT string_agg(concat(id, state, owner), ' ' ORDER BY id) AS text FROM task",
  );
  return rows[0]?.text ?? "";
}

test("the only due task is claimed with the same result as by the full claim", async () => {
  const insert = `INSERT INTO task (input, "group", max, count, timeout, header, "null", remote)
    VALUES ('SELECT max(1)', 'mine', 3, 2, '1.5 s', false, 'nil', 'host=elsewhere') RETURNING hash`;
  await user.query(`${insert}; INSERT INTO task (input, plan) VALUES ('SELECT 2', now() + '1 day')`);
  const [task] = (await claim()).claimed;
  const shown = "SELECT to_jsonb(t) - '{id,take,start,plan,created}'::text[] AS row FROM task AS t";
  const { rows: row } = await user.query(`${shown} WHERE id = 1`);
  await user.query("TRUNCATE task RESTART IDENTITY");
  const { rows } = await user.query<{ hash: number }>(insert);
  const request = claimOf(new Map([[rows[0]?.hash ?? 0, 0]]), { sessions: 1 });
  const { claimed } = await claimFull(manager, table, request);
  const [other] = claimed;
  /** The columns that both rows have are those of the task. */
  const names = Object.keys(other ?? {}).filter((name) => name in Object(task));
  assert.ok(names.length > 25, names.join());
  const fixed = { claimedAt: "", planned: 0, version: "" };
  const columns = (each: object | undefined) => ({
    ...Object.fromEntries(Object.entries(each ?? {}).filter(([name]) => names.includes(name))),
    ...fixed,
  });
  assert.deepEqual(columns(task), columns(other));
  assert.deepEqual(row, (await user.query(shown)).rows);
});

test("a reserved session gets no task of a group that already runs something, and one of another group", async () => {
  await user.query("INSERT INTO task (input, \"group\", max) VALUES ('SELECT 1', 'wide', 5)");
  const groups = [{ hash: await hashOf("1"), running: 1 }];
  const refused = await claim({ groups, unreserved: 0 });
  assert.deepEqual([refused.claimed, refused.isComplete], [[], false]);
  assert.deepEqual(ids((await claim({ groups, unreserved: 1 })).claimed), ["1"]);
  await user.query("INSERT INTO task (input, \"group\", max) VALUES ('SELECT 1', 'new', 5)");
  assert.deepEqual(ids((await claim({ groups, unreserved: 0 })).claimed), ["2"]);
  // The second task of a group needs a session that is not reserved.
  await user.query("INSERT INTO task (input, \"group\", max) VALUES ('SELECT 1', 'two', 5), ('SELECT 1', 'two', 5)");
  assert.deepEqual((await claim({ unreserved: 0 })).claimed, []);
});

const several = "INSERT INTO task (input, \"group\") VALUES ('SELECT 1', 'a'), ('SELECT 2', 'b')";
const one = "INSERT INTO task (input) VALUES ('SELECT 1')";
const insertMany = (tasks: number): string =>
  `INSERT INTO task (input, max) SELECT 'SELECT 1', 100 FROM generate_series(1, ${tasks})`;

for (const [what, statements] of Object.entries({
  "more tasks are due than it can take": insertMany(maxSmallClaim + 1),
  "a task is not active any more": `${several}; INSERT INTO task (input, plan, active) VALUES ('SELECT 1', now() - interval '1 hour', '1 s')`,
  "a task has a gap": `${several}; INSERT INTO task (input, gap) VALUES ('SELECT 1', '1 s')`,
  "a group is paused": `${several}; ${one}; INSERT INTO task_pause ("group") VALUES ('group')`,
  "the table is paused": `${one}; INSERT INTO task_pause ("group") VALUES (NULL)`,
})) {
  test(`nothing is claimed when ${what}`, async () => {
    await user.query(statements);
    const before = await owners();
    const { claimed, waiting, isComplete } = await claim();
    assert.deepEqual({ claimed, waiting, isComplete }, { claimed: [], waiting: [], isComplete: false });
    assert.equal(await owners(), before);
  });
}

test("nothing is claimed when more tasks can start than there are sessions", async () => {
  await user.query(several);
  const before = await owners();
  const { claimed, isComplete } = await claim({ sessions: sessions.slice(0, 1) });
  assert.deepEqual([ids(claimed), isComplete], [[], false]);
  assert.equal(await owners(), before);
});

test("several due tasks get one session each, in the order of their priority", async () => {
  await user.query(
    `${insertMany(maxSmallClaim - 1)}; INSERT INTO task (input, "group", max) VALUES ('SELECT 1', 'first', 1000)`,
  );
  const { claimed, waiting, isComplete } = await claim();
  assert.deepEqual([waiting, isComplete], [[], true]);
  const owned = claimed
    .map(({ id, owner, startsNow }) => [id, owner, startsNow])
    .toSorted(([a], [b]) => Number(a) - Number(b));
  assert.deepEqual(
    owned,
    Array.from({ length: maxSmallClaim }, (_, n) => [String(n + 1), `owner ${(n + 1) % maxSmallClaim}`, true]),
  );
});

test("the limit of a group counts its tasks in sessions and those of the same claim", async () => {
  await user.query(`INSERT INTO task (input, "group", max) VALUES
    ('SELECT 1', 'serial', 0), ('SELECT 2', 'serial', 0), ('SELECT 3', 'pair', 1), ('SELECT 4', 'pair', 1), ('SELECT 5', 'full', 1)`);
  const groups = [
    { hash: await hashOf("3"), running: 1 },
    { hash: await hashOf("5"), running: 2 },
  ];
  const { claimed, waiting, isComplete } = await claim({ groups });
  assert.deepEqual([ids(claimed).toSorted(), isComplete], [["1", "3"], true]);
  assert.deepEqual(ids(waiting).toSorted(), ["2", "4", "5"]);
});

test("no task starts in a group whose tasks are queued, whatever its max", async () => {
  await user.query("INSERT INTO task (input, max) VALUES ('SELECT 1', 2147483647)");
  const groups = new ActiveGroups();
  const hash = await hashOf("1");
  groups.addSession(hash);
  groups.enqueue(hash, 0);
  const { claimed, waiting, isComplete } = await claim({ groups: groups.inUse() });
  assert.deepEqual([claimed, ids(waiting), isComplete], [[], ["1"], true]);
});

test("without any session, it tells whether tasks can start", async () => {
  const nothing = await claim({ sessions: [] });
  assert.deepEqual([ids(nothing.claimed), nothing.isComplete], [[], true]);
  await user.query(one);
  assert.equal((await claim({ sessions: [] })).isComplete, false);
  const groups = [{ hash: await hashOf("1"), running: 1 }];
  const { waiting, isComplete } = await claim({ sessions: [], groups });
  assert.deepEqual([ids(waiting), isComplete], [["1"], true]);
});

test("it reads when the next task becomes due", async () => {
  const { clockMs, ...nextPlan } = (await claim()).nextPlan;
  assert.deepEqual(nextPlan, { ms: null, mustLookUp: false, isAloneDue: false });
  assert.ok(clockMs !== null && Math.abs(clockMs - Date.now()) < 60_000);
  await user.query("INSERT INTO task (input, plan) VALUES ('SELECT 1', now() + interval '1 hour')");
  const { ms } = (await claim()).nextPlan;
  assert.ok(ms !== null && ms > 3_500_000 && ms <= 3_600_000, String(ms));
});

test("it reads the version of the settings that the claimed tasks belong to", async () => {
  const { settingsVersion } = await claim();
  await user.query(
    "ALTER DATABASE current_database_name SET work_mem = '8MB'".replace(
      "current_database_name",
      `"${database.target.database}"`,
    ),
  );
  await user.query(one);
  const { claimed, settingsVersion: changed } = await claim();
  assert.deepEqual(ids(claimed), ["1"]);
  assert.notEqual(changed, settingsVersion);
  assert.equal(changed, await readSettingsVersion(manager, table));
});

test("a task with a running key is skipped", async () => {
  await user.query("INSERT INTO task (input, key) VALUES ('SELECT 1', 'busy'), ('SELECT 2', NULL)");
  const { claimed, waiting, isComplete } = await claim({ runningKeys: ["busy"] });
  assert.deepEqual([ids(claimed), waiting, isComplete], [["2"], [], true]);
});

test("an excepted or locked task is not claimed", async () => {
  await user.query(several);
  assert.deepEqual(ids((await claim({ except: ["1"] })).claimed), ["2"]);
  const holder = await database.connect();
  await holder.query("BEGIN; SELECT FROM task WHERE id = 1 FOR UPDATE");
  const { claimed, isComplete } = await claim();
  assert.deepEqual([claimed, isComplete], [[], false]);
  await holder.query("COMMIT");
  assert.deepEqual(ids((await claim()).claimed), ["1"]);
});

test("if some of the tasks are locked, the others are claimed", async () => {
  await user.query(several);
  const holder = await database.connect();
  await holder.query("BEGIN; SELECT FROM task WHERE id = 1 FOR UPDATE");
  const { claimed, waiting, isComplete } = await claim();
  assert.deepEqual([ids(claimed), waiting, isComplete], [["2"], [], false]);
  await holder.query("COMMIT");
});
