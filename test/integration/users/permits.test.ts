import assert from "node:assert/strict";
import { it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { lockClasses } from "../../../src/shared/postgres/advisoryLocks.js";
import { waitForRow } from "../../support/tasks.js";
import { opened, UsersServer } from "../../support/users.js";

const users = await UsersServer.start("superuser");
const { server, admin, bob } = users;
const tasks = 200;
const group = "one after another";

/** Takes the lock of each pipeline permit as soon as the manager releases it, as any role can. */
async function steal(isOver: () => boolean): Promise<number> {
  const alice = await opened(server, "alice", "shop");
  const thieves: ReturnType<typeof opened>[] = [];
  const seen = new Set<number>();
  while (!isOver()) {
    const { rows } = await alice.query<{ key: number }>(
      `SELECT DISTINCT objid::bigint::integer AS key FROM pg_locks
       WHERE locktype = 'advisory' AND classid::bigint = ${lockClasses.permit} AND pid <> ALL (ARRAY(SELECT pid FROM pg_stat_activity WHERE usename = 'alice'))`,
    );
    for (const { key } of rows) {
      if (seen.has(key)) continue;
      seen.add(key);
      const thief = opened(server, "alice", "shop");
      thieves.push(thief);
      await (await thief).query("SET statement_timeout = '60 s'");
      void (await thief).query(`SELECT pg_advisory_lock(${lockClasses.permit}, ${key})`).catch(() => {});
    }
    await sleep(1);
  }
  await alice.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'alice' AND pid <> pg_backend_pid()",
  );
  return seen.size;
}

it("no role lets a run begin that was taken back", { timeout: 240_000 }, async () => {
  for (let n = 0; n < tasks; n += 1) await bob.query(`CREATE SEQUENCE public.began_${n}`);
  // Only short runs are sent behind others.
  for (let n = 0; n < 20; n += 1) await users.run(bob, "SELECT 1", { group, max: 3 });
  let isOver = false;
  const stealing = steal(() => isOver);
  for (let round = 0; round < 5; round += 1) {
    await admin.query("SELECT pg_advisory_lock(1)");
    // The first one waits, as nobody could know when it was given to its session, and the others are taken back from it.
    const { rows } = await bob.query<{ id: string }>(
      `INSERT INTO task (input, "group", max) SELECT concat('SELECT nextval(''public.began_', n, ''')',
         CASE WHEN n = 20 THEN '; SELECT pg_advisory_lock_shared(1)' END), '${group}', 3 FROM generate_series(0, ${tasks - 1}) AS n RETURNING id`,
    );
    const [slow, ...others] = [rows[20], ...rows.slice(0, 20), ...rows.slice(21)].map((row) => row?.id ?? "");
    await waitForRow(
      admin,
      "SELECT FROM (SELECT count(*) AS n FROM task WHERE id = ANY ($1::bigint[]) AND state = 'DONE') AS d WHERE n = $2",
      [others, others.length],
    );
    await admin.query("SELECT pg_advisory_unlock(1)");
    assert.equal((await users.ended(slow ?? "")).state, "DONE");
    // Whatever was sent behind it has been answered when its session takes another task.
    await users.run(bob, "SELECT 1", { group, max: 3 });
  }
  isOver = true;
  await stealing;
  const { rows: began } = await bob.query<{ n: number; times: string }>(
    `SELECT n, (SELECT last_value FROM pg_sequences WHERE sequencename = concat('began_', n))::text AS times FROM generate_series(0, ${tasks - 1}) AS n`,
  );
  assert.deepEqual(
    began.filter(({ times }) => times !== "5"),
    [],
  );
  assert.equal(users.pgTask.linesMatching("a recalled run has been executed").length, 0);
});
