import assert from "node:assert/strict";
import { DatabaseError } from "pg";
import { OwedSuccessors } from "../../../../src/manager/upkeep/owedSuccessors.js";
import { toPlan, type ClaimPlan } from "../../../../src/manager/claim/claimPlan.js";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import { RejectedClaims } from "../../../../src/manager/claim/rejectedClaims.js";
import { tryClaims } from "../../../../src/manager/claim/tryClaims.sql.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { ensureTaskTable, openManager, silentLog } from "../../../support/taskTables.js";
import { only, Tasks } from "../../../support/tasks.js";

const database = await createDatabase("SQL_ASCII");
await ensureTaskTable(database.target);
const client = await database.connect();
const holder = await database.connect();
const manager = await openManager(database.target);
const tasks = await Tasks.create(client);
const table = taskTable("public", "task");

const unreadable = new DatabaseError("invalid byte sequence", 0, "error");
unreadable.code = "22021";
const refused = new DatabaseError("no start", 0, "error");
refused.code = "P0001";
const options = { except: [], search: true, traced: false };

/** Returns a plan to claim one task of these groups. */
function planOf(...hashes: readonly number[]): ClaimPlan {
  const groups = new ActiveGroups();
  for (const hash of hashes) groups.addDue(hash, { max: 0, id: 1n });
  const maxTasks = new Map(hashes.flatMap((hash) => groups.get(hash) ?? []).map((group) => [group, 1]));
  const slots = [{ owner: "1 now", pid: 1, startsNow: true }];
  return toPlan(groups, { offered: [], slots, maxCandidates: 1, maxTasks, starts: 0 });
}

/** Inserts tasks into a group. Returns their ids and the hash of the group. */
async function insert(
  count: number,
  group: string,
  input = "'SELECT 1'",
): Promise<{ readonly ids: string[]; readonly hash: number }> {
  const { rows } = await client.query<{ id: string; hash: number }>(
    `INSERT INTO task (input, "group", data) SELECT ${input}, $1, $1 FROM generate_series(1, $2) RETURNING id, hash`,
    [group, count],
  );
  return { ids: rows.map(({ id }) => id), hash: rows[0]?.hash ?? 0 };
}

const badInput = "convert_from('\\x53454c4543542027e927', 'SQL_ASCII')";

test("only unreadable tasks are ended, not those that are claimed together with them", async () => {
  const before = await insert(3, "mixed");
  const bad = await insert(1, "mixed", badInput);
  const after = await insert(3, "mixed");
  const other = await insert(2, "other");
  const worse = await insert(1, "worse", badInput);
  const claims = new RejectedClaims({ table, owed: new OwedSuccessors({ table, log: silentLog }), log: silentLog });
  for (let times = 0; times < 2; times += 1)
    await claims.findRejected(manager, planOf(bad.hash, other.hash, worse.hash), unreadable, options);
  const good = [...before.ids, ...after.ids, ...other.ids];
  for (const id of good) assert.equal((await tasks.row(id)).state, "PLAN");
  for (const id of [...bad.ids, ...worse.ids]) {
    const row = await tasks.row(id);
    assert.equal(row.state, "FAIL");
    assert.match(row.error ?? "", /^ERROR: {2}task is not readable as UTF-8: invalid byte/);
  }
  assert.deepEqual(claims.rows.ids, []);
});

test("an unreadable task becomes FAIL even if its successor is rejected, and its error says so", async () => {
  await client.query("ALTER TABLE task ADD COLUMN label text UNIQUE");
  const bad = await insert(1, "repeats", badInput);
  await client.query("UPDATE task SET repeat = '1 hour', label = 'one' WHERE id = $1", bad.ids);
  const claims = new RejectedClaims({ table, owed: new OwedSuccessors({ table, log: silentLog }), log: silentLog });
  for (let times = 0; times < 2; times += 1) await claims.findRejected(manager, planOf(bad.hash), unreadable, options);
  const row = await tasks.row(only(bad.ids));
  assert.equal(row.state, "FAIL");
  assert.match(row.error ?? "", /^ERROR: {2}task is not readable .*\nERROR: {2}next run was not planned/);
  assert.deepEqual(claims.rows.ids, []);
});

test("locked tasks are not waited for, and are tried again after a delay", async (context) => {
  const { ids, hash } = await insert(1_000, "locked");
  await client.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no start'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON task FOR EACH ROW
      WHEN (NEW.owner IS NOT NULL AND NEW.data = 'locked') EXECUTE FUNCTION refuse()`);
  const claims = new RejectedClaims({ table, owed: new OwedSuccessors({ table, log: silentLog }), log: silentLog });
  await claims.findRejected(manager, planOf(hash), refused, options);
  assert.ok(claims.rows.ids.length > 0);
  await client.query("DROP TRIGGER refuse ON task");
  await holder.query("BEGIN");
  await holder.query(`UPDATE task SET data = 'repaired' WHERE "group" = 'locked'`);
  const since = performance.now();
  const tried = await tryClaims(manager, table, ids, ["current", "queued"], {
    forMs: 60_000,
    lockMs: 1,
  });
  context.diagnostic(`${ids.length} were tried in ${Math.round(performance.now() - since)} ms`);
  assert.deepEqual(tried.locked, ids);
  assert.equal(tried.rejected.size, 0);
  while (claims.rows.nextRetryMs > 0) await new Promise((resolve) => setTimeout(resolve, 20));
  // Wait until every rejected task may be tried again.
  while (claims.rows.retryableIds.length < claims.rows.ids.length)
    await new Promise((resolve) => setTimeout(resolve, 20));
  await claims.retry(manager);
  assert.ok(claims.rows.delayedIds.length > 0);
  await holder.query("COMMIT");
  const free = await tryClaims(manager, table, ids, ["current"], { forMs: 60_000, lockMs: 1 });
  assert.deepEqual(free.free, ids);
});

test("trying ends when its time is over, and reports how far it has come", async () => {
  await client.query(`
    CREATE TABLE counter (n int); INSERT INTO counter VALUES (0);
    CREATE FUNCTION count_up() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN UPDATE public.counter SET n = n + 1; RETURN NULL; END $$;
    CREATE TRIGGER count AFTER UPDATE ON task FOR EACH ROW
      WHEN (NEW.owner IS NOT NULL AND NEW.data = 'counted') EXECUTE FUNCTION count_up()`);
  const { ids } = await insert(20, "counted");
  await holder.query("BEGIN; UPDATE counter SET n = 0");
  const { tried, rejected: held, locked } = await tryClaims(manager, table, ids, ["current"], { forMs: 1, lockMs: 1 });
  assert.deepEqual(tried, ids.slice(0, 1));
  assert.deepEqual(
    [...held].map(([id, { code }]) => [id, code]),
    [[ids[0], "55P03"]],
  );
  assert.deepEqual(locked, []);
  await holder.query("COMMIT");
  const free = await tryClaims(manager, table, ids, ["current"], { forMs: 60_000, lockMs: 1 });
  assert.deepEqual(free.free, ids);
});
