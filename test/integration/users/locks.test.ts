import assert from "node:assert/strict";
import { it } from "node:test";
import { lockClasses } from "../../../src/shared/postgres/advisoryLocks.js";
import { only, waitForRow } from "../../support/tasks.js";
import { collidingGroups, opened, UsersServer } from "../../support/users.js";

const limit = { timeout: 120_000 };
const users = await UsersServer.start("CREATEROLE");
const { server, pgTask, admin, alice, bob } = users;
await admin.query("CREATE TABLE effect (id bigint); GRANT INSERT ON effect TO PUBLIC");

const { key } = only((await admin.query<{ key: number }>("SELECT 'task'::regclass::oid::int AS key")).rows);
const effect = "INSERT INTO public.effect VALUES (current_setting('pg_task.id')::bigint)";

async function assertOnce(ids: readonly string[]): Promise<void> {
  for (const id of ids) assert.equal((await users.ended(id)).state, "DONE");
  const { rows } = await admin.query<{ n: string }>("SELECT count(*) AS n FROM effect WHERE id = ANY ($1::bigint[])", [
    ids,
  ]);
  assert.equal(only(rows).n, String(ids.length));
}

it("a role that holds pg-task's advisory locks delays tasks, and no task is lost or runs twice", limit, async () => {
  const thief = await opened(server, "alice", "shop");
  for (const lock of [lockClasses.busy, lockClasses.change, lockClasses.sessionsRefused, lockClasses.rejectedResult])
    await thief.query(`SELECT pg_advisory_lock(${lock}, ${key})`);
  const first = await users.insert(bob, effect);
  const second = await users.insert(bob, effect, { after: [first], upon: "end" });
  await users.ended(first);
  // Whoever waits for the lock of the table gets it as soon as its manager has lost it, and then nothing begins.
  const waiting = thief.query(`SELECT pg_advisory_lock(${lockClasses.manager}, ${key})`);
  await waitForRow(admin, "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", []);
  await admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pg_work %'");
  await waiting;
  const third = await users.insert(bob, effect);
  await pgTask.logged(({ msg, pid }) => pid !== undefined && /lock/.test(msg));
  assert.equal((await admin.query("SELECT FROM task WHERE id = $1 AND state = 'PLAN'", [third])).rowCount, 1);
  await thief.query("SELECT pg_advisory_unlock_all()");
  await assertOnce([first, second, third]);
});

it(
  "a role whose group has the hash of another role's delays its tasks while its own run, and no longer",
  limit,
  async () => {
    const { hers, his } = collidingGroups;
    await admin.query("SELECT pg_advisory_lock(1)");
    const long = await users.insert(alice, "SELECT pg_advisory_lock_shared(1)", { group: hers });
    await waitForRow(admin, "SELECT FROM task WHERE id = $1 AND state = 'WORK'", [long]);
    const delayed = await users.insert(bob, effect, { group: his });
    const { rows: hashes } = await admin.query("SELECT DISTINCT hash FROM task WHERE id IN ($1, $2)", [long, delayed]);
    assert.equal(hashes.length, 1);
    const other = await users.insert(bob, effect);
    await assertOnce([other]);
    assert.equal((await admin.query("SELECT FROM task WHERE id = $1 AND state = 'PLAN'", [delayed])).rowCount, 1);
    await alice.query("UPDATE task SET state = 'STOP' WHERE id = $1", [long]);
    await assertOnce([delayed]);
    await admin.query("SELECT pg_advisory_unlock(1)");
  },
);

it(
  "a role that holds the lock for changes of the schema delays a manager that starts, and no longer",
  limit,
  async () => {
    const thief = await opened(server, "alice", "shop");
    await thief.query(`SELECT pg_advisory_lock(${lockClasses.change}, hashtext('public'))`);
    await admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pg_work %'");
    const id = await users.insert(bob, effect);
    const waits = `SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid::bigint = ${lockClasses.change}`;
    await waitForRow(admin, waits, []);
    assert.equal((await admin.query("SELECT FROM task WHERE id = $1 AND state = 'PLAN'", [id])).rowCount, 1);
    await thief.query("SELECT pg_advisory_unlock_all()");
    await assertOnce([id]);
  },
);
