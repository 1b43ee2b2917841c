import assert from "node:assert/strict";
import { it } from "node:test";
import type { Client } from "../../../src/shared/postgres/client.js";
import { connectTo, withConnectionTo } from "../../support/connectTo.js";
import { startProcess } from "../../support/process.js";
import { detachReplica, makeReplica, promote, waitForReplay } from "../../support/replica.js";
import { RestartableServer } from "../../support/restartableServer.js";
import {
  rowsOf,
  valueOf,
  recordEffect as effect,
  insertTask,
  waitForRow,
  waitForRun,
  waitForState,
} from "../../support/tasks.js";

const [a, b] = [await RestartableServer.create(), await RestartableServer.create()];
const both = `postgresql://postgres@127.0.0.1:${a.port},127.0.0.1:${b.port}/postgres`;
await a.start();

let primary = a;
let standby = b;

/** Makes the stopped server a replica of the primary, and starts it. */
async function addStandby(settings: Readonly<Record<string, string | number>> = {}): Promise<void> {
  await makeReplica(primary, standby);
  await standby.start(settings);
  await waitForReplay(primary, standby);
}

/** Ends the primary for good, and makes the standby the primary. The old primary is stopped. */
async function failOver(): Promise<void> {
  await primary.crash();
  await promote(standby);
  [primary, standby] = [standby, primary];
}

/** Waits until all tasks have ended, and checks that each has had its effect exactly once. */
async function checkEffects(client: Client): Promise<number> {
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK'))");
  const { rows } = await client.query<{ wrong: number; tasks: number }>(
    `SELECT count(*) FILTER (WHERE state <> 'DONE' OR effects <> 1)::int AS wrong, count(*)::int AS tasks
     FROM (SELECT t.id, t.state, (SELECT count(*) FROM effect AS e WHERE e.task = t.id) AS effects
           FROM task AS t WHERE t.input = $1) AS each`,
    [effect],
  );
  assert.equal(rows[0]?.wrong, 0);
  const stray = await client.query("SELECT FROM effect WHERE NOT EXISTS (SELECT FROM task WHERE id = effect.task)");
  assert.equal(stray.rows.length, 0);
  return rows[0]?.tasks ?? 0;
}

async function withPrimary<T>(work: (client: Client) => Promise<T>): Promise<T> {
  return await withConnectionTo(primary.url, work);
}

const program = await startProcess({ config: { url: both }, until: "ready" });
await withPrimary((client) => client.query("CREATE TABLE effect (task bigint); CREATE INDEX ON effect (task)"));

it("follows the primary, whichever of two servers it is, and loses or repeats nothing that it has", async (context) => {
  await addStandby();
  for (let round = 0; round < 2; round += 1) {
    await withPrimary(async (client) => {
      await client.query(
        `INSERT INTO task (input, "group", max)
         SELECT $1, 'group ' || n % 50, 1 FROM generate_series(1, 1000) AS n`,
        [effect],
      );
      const done = "SELECT WHERE (SELECT count(*) FROM task WHERE state = 'DONE') >= $1";
      await waitForRow(client, done, [round * 1000 + 100]);
    });
    await failOver();
    const tasks = await withPrimary(checkEffects);
    context.diagnostic(`round ${round}: the new primary had ${tasks} of ${(round + 1) * 1000} tasks`);
    // What the new primary did not have is inserted again, so that each round starts alike.
    await withPrimary((client) =>
      client.query(
        `WITH added AS (INSERT INTO task (input, state) SELECT $1, 'DONE' FROM generate_series(1, $2) RETURNING id)
         INSERT INTO effect SELECT id FROM added`,
        [effect, (round + 1) * 1000 - tasks],
      ),
    );
    await addStandby();
  }
  assert.equal(program.linesMatching("ready").length, 1);
});

it("does not use the old primary that came back as a standby, although it is the first of the servers", async () => {
  // Now the primary is `a` again. After this failover, the first server in the list is a standby.
  assert.equal(primary, a);
  await failOver();
  await addStandby();
  await withPrimary(async (client) => {
    const from = program.lines.length;
    await client.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ~ '^pg_(conf|work)'",
    );
    await program.until(() => program.lines.slice(from).some(({ msg }) => msg === "serving table"), "a new connection");
    await waitForState(client, await insertTask(client, effect), "DONE");
    await checkEffects(client);
    await waitForReplay(primary, standby);
  });
  await withConnectionTo(standby.url, async (client) => {
    const { rows } = await client.query("SELECT FROM pg_stat_activity WHERE application_name ~ '^pg_(conf|work|task)'");
    assert.deepEqual(rows, []);
  });
});

it("runs again what a lagging standby has not received, and forgets what it knew about it", async () => {
  await withPrimary(async (client) => {
    await client.query("SELECT pg_advisory_lock(1)");
    // The standby has the first claim of this task, but not the second.
    const claimedTwice = await insertTask(client, `SELECT pg_advisory_xact_lock_shared(1); ${effect}`, {
      group: "twice",
    });
    const first = await waitForRun(client, claimedTwice);
    const running = await insertTask(client, `SELECT pg_advisory_xact_lock_shared(1); ${effect}`, { group: "running" });
    await waitForRun(client, running);
    await waitForState(client, await insertTask(client, effect), "DONE");
    await client.query("CREATE TABLE mark ()");
    await waitForReplay(primary, standby);
    await detachReplica(standby);
    await client.query("SELECT pg_terminate_backend($1)", [first.pid]);
    await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'WORK' AND owner <> $2", [
      claimedTwice,
      first.owner,
    ]);
    await waitForRun(client, claimedTwice);
    // The standby has neither these tasks nor their effects.
    for (let count = 0; count < 5; count += 1) {
      await waitForState(client, await insertTask(client, effect, { group: `lost ${count}` }), "DONE");
    }
  });
  await failOver();
  await withPrimary(async (client) => {
    await checkEffects(client);
    const outcomes = `SELECT array_agg(concat(state, ' ', (SELECT count(*) FROM effect WHERE task = id))) FROM task WHERE input <> $1`;
    assert.deepEqual(await valueOf(client, outcomes, [effect]), ["DONE 1", "DONE 1"]);
    assert.deepEqual(await rowsOf(client, `SELECT FROM task WHERE "group" ~ '^lost'`), []);
    await waitForState(client, await insertTask(client, effect), "DONE");
  });
});

it("loses nothing if the standby has received everything but applies it late", async () => {
  await makeReplica(primary, standby);
  await standby.start({ recovery_min_apply_delay: "1h" });
  const ids: string[] = [];
  await withPrimary(async (client) => {
    for (let count = 0; count < 5; count += 1) ids.push(await insertTask(client, effect, { group: `late ${count}` }));
    for (const id of ids) await waitForState(client, id, "DONE");
    // The commits of runs are not flushed at once, and only what is flushed is sent.
    const { rows } = await client.query<{ lsn: string }>("SELECT pg_current_wal_insert_lsn()::text AS lsn");
    const receiver = await connectTo(standby.url);
    await client.query("CREATE TABLE flushed ()");
    await waitForRow(receiver, "SELECT WHERE pg_last_wal_receive_lsn() >= $1::pg_lsn", [rows[0]?.lsn]);
    await receiver.end();
  });
  const before = await withPrimary((client) =>
    client.query("SELECT id, start, stop FROM task WHERE id = ANY ($1) ORDER BY id", [ids]),
  );
  await failOver();
  await withPrimary(async (client) => {
    const now = await client.query("SELECT id, start, stop FROM task WHERE id = ANY ($1) ORDER BY id", [ids]);
    assert.deepEqual(now.rows, before.rows);
    await checkEffects(client);
  });
  assert.equal(program.linesMatching("ready").length, 1);
  await program.stop();
});

it("goes on if the leading process dies just before or after the new server is promoted", async () => {
  let leader = await startProcess({ config: { url: both } });
  await leader.line("ready");
  for (const when of ["before", "after"] as const) {
    await addStandby();
    const next = await startProcess({ config: { url: both }, until: "standby" });
    await withPrimary(async (client) => {
      const { rows } = await client.query<{ first: string }>(
        `WITH added AS (INSERT INTO task (input, "group") SELECT $1, 'pair ' || n % 50 FROM generate_series(1, 1000) AS n
                        RETURNING id) SELECT min(id)::text AS first FROM added`,
        [effect],
      );
      const some = "SELECT FROM task WHERE id >= $1 AND state = 'DONE' HAVING count(*) > 100";
      await waitForRow(client, some, [rows[0]?.first]);
    });
    await primary.crash();
    if (when === "before") await leader.end("SIGKILL");
    await promote(standby);
    [primary, standby] = [standby, primary];
    if (when === "after") await leader.end("SIGKILL");
    await withPrimary(checkEffects);
    leader = next;
  }
  await leader.stop();
});
