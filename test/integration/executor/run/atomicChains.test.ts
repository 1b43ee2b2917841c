import assert from "node:assert/strict";
import { after, beforeEach, test } from "node:test";
import { maxPipelineRunsWithoutSlow } from "../../../../src/executor/tuning.js";
import { recreateObjects } from "../../../../src/manager/schema/migrations.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import type { Run } from "../../../../src/shared/ipc/run.js";
import type { ExecutorDriver } from "../../../support/executorDriver.js";
import { ClaimedRuns } from "../../../support/claimedRuns.js";
import { createDatabase, onServer } from "../../../support/database.js";
import type { EndedResult } from "../../../support/executorDriver.js";
import { tracesSetup, traces } from "../../../support/traces.js";

const database = await createDatabase();
const runs = await ClaimedRuns.create(database);
const { admin, driver } = runs;

beforeEach(async () => {
  await admin.query("TRUNCATE effect");
  driver.onCancel = (session, id) => void driver.cancel(session, id);
});

const insert = "INSERT INTO effect VALUES ($id)";

async function claim(...inputs: readonly string[]): Promise<Run[]> {
  const claimed: Run[] = [];
  for (const input of inputs) claimed.push(await runs.claim(input));
  return claimed;
}

async function results(of: readonly Run[]): Promise<EndedResult[]> {
  const all = await Promise.all(of.map(({ id }) => driver.result(id)));
  return all.flatMap((result) => (result.outcome === "ended" ? result : []));
}

/** Asserts that each of these runs had its effect exactly once and reports success. */
async function expectEffects(of: readonly Run[]): Promise<void> {
  const ended = await results(of);
  assert.deepEqual(
    ended.map(({ id, error, committed }) => ({ id, error, committed })),
    of.map(({ id }) => ({ id, error: null, committed: true })),
  );
  const effects = await runs.effects();
  for (const run of of) {
    assert.equal(effects.filter((what) => what === run.id).length, 1);
    assert.equal(await runs.proofs(run), 1);
  }
}

test("pipelined runs finish in order, each with its own settings and times", async () => {
  const chain = await claim(...Array.from({ length: 20 }, () => `${insert}; SELECT current_setting('pg_task.id')`));
  driver.executor.dispatch(chain);
  await expectEffects(chain);
  const ended = await results(chain);
  assert.deepEqual(
    driver.results().flatMap(({ id }) => (chain.some((run) => run.id === id) ? [id] : [])),
    chain.map(({ id }) => id),
  );
  assert.deepEqual(
    ended.map(({ output }) => output),
    chain.map(({ id }) => `INSERT 0 1\n${id}`),
  );
  const times = ended.flatMap(({ start, stop }) => [start, stop ?? ""]);
  assert.deepEqual(times.toSorted(), times);
});

test("pipelined and stepwise runs finish in order", async () => {
  const chain = await claim(
    insert,
    `BEGIN; ${insert}; COMMIT`,
    insert,
    "VACUUM effect",
    insert,
    insert,
    "SELECT 1/0",
    insert,
  );
  const [first = insert, ...others] = chain.filter((_, index) => [0, 2, 4, 5, 7].includes(index));
  const timed = await runs.claim(insert, { timeoutMs: 60_000 });
  const saving = await runs.claim(insert, { save: true });
  const all = [...chain, timed, saving];
  driver.executor.dispatch(all);
  await Promise.all(all.map(({ id }) => driver.result(id)));
  const order = driver.results().map(({ id }) => id);
  assert.deepEqual(
    order.filter((id) => all.some((run) => run.id === id)),
    all.map(({ id }) => id),
  );
  if (typeof first === "string") throw new Error("no run");
  await expectEffects([first, ...others, timed, saving]);
});

test("a failed run leaves no state to the next", async () => {
  const [failing, look] = await claim(
    "SET work_mem = '7MB'; CREATE TEMP TABLE t (); SELECT FROM pg_advisory_lock(1); SELECT 1/0",
    `${insert}; SELECT current_setting('work_mem') = '7MB', to_regclass('t') IS NULL,
     (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND classid::bigint <> pid)`,
  );
  assert.ok(failing !== undefined && look !== undefined);
  driver.executor.dispatch([failing, look]);
  await expectEffects([look]);
  assert.match((await results([look]))[0]?.output ?? "", /f\tt\t0$/);
});

const role = `role_${database.target.database}`;
await admin.query(`${tracesSetup}; CREATE ROLE ${role}`);
after(() => onServer((server) => server.query(`DROP ROLE ${role}`)));

for (const [what, [leave, look, none]] of Object.entries(traces(role))) {
  for (const atomic of [true, false]) {
    const kind = atomic ? "atomic" : "that is not atomic";
    test(`a run ${kind} leaves nothing of ${what} to runs already pipelined behind it`, async () => {
      const chain: Run[] = [];
      for (const input of [leave, look, look, leave, look]) {
        chain.push(await runs.claim(input, { atomic }));
      }
      driver.executor.dispatch(chain);
      const ended = await results(chain);
      assert.deepEqual(
        ended.map(({ error }) => error),
        chain.map(() => null),
      );
      assert.deepEqual(
        [1, 2, 4].map((place) => ended[place]?.output),
        [none, none, none],
      );
    });
  }
  // The reset after the first run is part of the failed run's transaction, so the rollback undoes that reset.
  test(`a run that fails in between restores nothing of ${what}`, async () => {
    const chain = await claim(leave, "SELECT 1; SELECT 1/0", look);
    driver.executor.dispatch(chain);
    const [, failed, looked] = await results(chain);
    assert.match(failed?.error ?? "", /division by zero/);
    assert.deepEqual([looked?.error, looked?.output], [null, none]);
  });
}

for (const [setting, value] of [
  ["transaction_isolation", "serializable"],
  ["transaction_deferrable", "on"],
]) {
  test(`no pipelined run can set ${setting}`, async () => {
    await admin.query(
      `CREATE FUNCTION change_${setting}() RETURNS text LANGUAGE sql AS $$ SELECT set_config('${setting}', '${value}', false) $$`,
    );
    const chain = await claim(`SELECT change_${setting}()`, "SELECT 1", `SELECT change_${setting}()`);
    driver.executor.dispatch(chain);
    const [first, , last] = await results(chain);
    assert.match(first?.error ?? "", /must be called before any query/);
    assert.match(last?.error ?? "", /must be called before any query/);
  });
}

test("a run that resets its transaction's isolation does not affect the next", async () => {
  const strict = await createDatabase();
  const own = await ClaimedRuns.create(strict);
  await own.admin.query(
    `${tracesSetup};
     CREATE FUNCTION weaken() RETURNS text LANGUAGE sql AS $$ SELECT set_config('transaction_isolation', NULL, false) $$;
     ALTER DATABASE ${strict.target.database} SET default_transaction_isolation = 'serializable'`,
  );
  // Session 1 was opened before the setting was made, so a new session is needed.
  await own.driver.open(2);
  const chain: Run[] = [];
  for (const input of ["SELECT weaken()", "SELECT kind_of_transaction()", "SELECT 1"]) {
    chain.push(await own.claim(input, {}, 2));
  }
  own.driver.executor.dispatch(chain);
  const looked = await own.driver.result(chain[1]?.id ?? "");
  assert.equal(looked.outcome === "ended" && looked.output, "off serializable");
});

/** Maximum pipeline depth. Without a slow run among the last ones, it is higher than otherwise. */
const maxOnWire = maxPipelineRunsWithoutSlow;

/**
 * Returns how many runs were sent. To be called when the others have been released. The number depends on how long the
 * runs took.
 */
function countOnWire(chain: readonly Run[], of: ExecutorDriver): number {
  const released = new Set(of.results().flatMap(({ id, outcome }) => (outcome === "released" ? id : [])));
  const onWire = chain.findIndex(({ id }) => released.has(id));
  assert.ok(onWire >= 4 && onWire <= maxOnWire, `${onWire} were sent`);
  return onWire;
}

test("queued runs are recalled unless they are on the wire", async () => {
  const chain = await claim(
    `${insert}; SELECT FROM pg_advisory_lock(51)`,
    ...Array.from({ length: maxOnWire + 8 }, () => insert),
  );
  await admin.query("SELECT pg_advisory_lock(51)");
  driver.executor.dispatch(chain);
  await driver.untilBlocked(1, "pg_advisory_lock");
  driver.executor.receive({
    type: "recall",
    runs: [
      { session: 1, ids: chain.map(({ id }) => id), queuedBehind: null },
      { session: 7, ids: ["1"], queuedBehind: null },
    ],
  });
  const onWire = countOnWire(chain, driver);
  for (const { id } of chain.slice(onWire)) {
    assert.equal((await driver.result(id)).outcome, "released");
  }
  await admin.query("SELECT pg_advisory_unlock(51)");
  await expectEffects(chain.slice(0, onWire));
  assert.equal((await runs.effects()).length, onWire);
});

test("a pipelined run does not begin without a permit: it is released if recalled, otherwise sent again", async () => {
  for (const recalls of [true, false]) {
    await driver.grantPermit(1);
    const chain = await claim(`${insert}; SELECT FROM pg_advisory_lock(57)`, insert, insert);
    const [first, second, third] = chain;
    assert.ok(first !== undefined && second !== undefined && third !== undefined);
    await admin.query("SELECT pg_advisory_lock(57)");
    driver.executor.dispatch(chain);
    await driver.untilBlocked(1, "pg_advisory_lock");
    const ids = recalls ? [second.id] : [];
    driver.executor.receive({ type: "recall", runs: [{ session: 1, ids, queuedBehind: first.id }] });
    const answer = await driver.message("recalled", (each) => each.sent?.[0]?.id === first.id);
    const sent = answer.sent ?? [];
    assert.deepEqual(
      sent.map(({ id }) => id),
      chain.map(({ id }) => id),
    );
    const held = await admin.query<{ lock: number }>(
      `SELECT objid::bigint::integer AS lock FROM pg_locks
       WHERE locktype = 'advisory' AND pid = $1 AND classid = $1 AND objsubid = 2`,
      [driver.backend(1).pid],
    );
    assert.deepEqual(held.rows, [{ lock: sent[0]?.lockKey }]);
    await driver.revokePermit(1);
    await admin.query("SELECT pg_advisory_unlock(57)");
    const others = recalls ? [first, third] : chain;
    await expectEffects(others);
    if (recalls) assert.equal((await driver.result(second.id)).outcome, "released");
    assert.equal((await runs.effects()).length, others.length);
    await admin.query("TRUNCATE effect");
  }
  await driver.grantPermit(1);
});

test("a queued run that is cancelled is released", async () => {
  const [first, second] = await claim("BEGIN; SELECT FROM pg_advisory_lock(52)", insert);
  assert.ok(first !== undefined && second !== undefined);
  await admin.query("SELECT pg_advisory_lock(52)");
  driver.executor.dispatch([first, second]);
  await driver.untilBlocked(1, "pg_advisory_lock");
  driver.executor.receive({ type: "cancel", session: 1, id: second.id });
  assert.equal((await driver.result(second.id)).outcome, "released");
  await admin.query("SELECT pg_advisory_unlock(52)");
  assert.equal((await driver.result(first.id)).outcome, "ended");
  assert.deepEqual(await runs.effects(), []);
});

test("a pipelined run cancelled before it begins has no effect", async () => {
  const [first, second, third] = await claim(
    `${insert}; SELECT FROM pg_advisory_lock(53)`,
    `${insert}; SELECT pg_sleep(60)`,
    insert,
  );
  assert.ok(first !== undefined && second !== undefined && third !== undefined);
  await admin.query("SELECT pg_advisory_lock(53)");
  driver.executor.dispatch([first, second, third]);
  await driver.untilBlocked(1, "pg_advisory_lock");
  driver.executor.receive({ type: "cancel", session: 1, id: second.id });
  await admin.query("SELECT pg_advisory_unlock(53)");
  await expectEffects([first, third]);
  const [result] = await results([second]);
  assert.match(result?.error ?? "", /canceling statement due to user request/);
  assert.equal((await runs.effects()).length, 2);
});

test("only a queued run that takes long is reported as started", async () => {
  const [first, second, third] = await claim(insert, `${insert}; SELECT FROM pg_advisory_lock(54)`, insert);
  assert.ok(first !== undefined && second !== undefined && third !== undefined);
  await admin.query("SELECT pg_advisory_lock(54)");
  driver.executor.dispatch([first, second, third]);
  const { start, session } = await driver.message("started", ({ id }) => id === second.id);
  await admin.query("SELECT pg_advisory_unlock(54)");
  const [result] = await results([second]);
  assert.deepEqual([session, start], [1, result?.start]);
  await expectEffects([first, second, third]);
});

test("a cancel for one run never costs another its effect", async () => {
  const cancelOften = async (session: number, id: string): Promise<void> => {
    const { pid } = driver.backend(session);
    for (let count = 0; count < 4; count++) {
      await admin.query("SELECT pg_cancel_backend($1)", [pid]);
    }
    driver.executor.receive({ type: "cancelAnswered", session, id });
  };
  driver.onCancel = (session, id) => void cancelOften(session, id);
  for (let round = 0; round < 25; round++) {
    const [victim, ...others] = await claim(
      `${insert}; SELECT pg_sleep(0.001)`,
      ...Array.from({ length: 5 }, () => insert),
    );
    assert.ok(victim !== undefined);
    driver.executor.dispatch([victim, ...others]);
    driver.executor.receive({ type: "cancel", session: 1, id: victim.id });
    const result = await driver.result(victim.id);
    await expectEffects(others);
    const hadEffect = (await runs.effects()).includes(victim.id);
    assert.equal(await runs.proofs(victim), hadEffect ? 1 : 0);
    if (result.outcome === "ended") assert.equal(result.committed, hadEffect);
    assert.equal((await runs.effects()).length, others.length + (hadEffect ? 1 : 0));
    await admin.query("TRUNCATE effect");
  }
  assert.deepEqual(
    driver.messages.filter(({ type }) => type === "lost"),
    [],
  );
});

test("foreign cancels at any moment: effect and proof together, or neither and an error", async () => {
  const { pid } = driver.backend(1);
  const ended = new AbortController();
  const stranger = await database.connect();
  const cancelling = (async () => {
    while (!ended.signal.aborted) await stranger.query("SELECT pg_cancel_backend($1)", [pid]);
  })();
  const chain = await claim(...Array.from({ length: 200 }, () => insert));
  driver.executor.dispatch(chain);
  await Promise.all(chain.map(({ id }) => driver.result(id)));
  ended.abort();
  await cancelling;
  const effects = await runs.effects();
  for (const run of chain) {
    const result = await driver.result(run.id);
    const hadEffect = effects.filter((what) => what === run.id).length;
    assert.equal(await runs.proofs(run), hadEffect);
    if (result.outcome === "released") assert.equal(hadEffect, 0);
    else assert.deepEqual([result.committed, result.error === null], [hadEffect === 1, hadEffect === 1]);
  }
});

test("a run after a failed reset waits for the session repair", async () => {
  const kept = await runs.begin("CREATE TEMP TABLE held ()", { save: true });
  await driver.result(kept.id);
  const { rows } = await admin.query<{ name: string }>(
    "SELECT relnamespace::regnamespace || '.held' AS name FROM pg_class WHERE relname = 'held'",
  );
  const holder = await database.connect();
  await holder.query(`BEGIN; LOCK TABLE ${rows[0]?.name} IN ACCESS SHARE MODE`);
  const [first, second] = await claim(insert, `SELECT current_user; ${insert}`);
  assert.ok(first !== undefined && second !== undefined);
  driver.executor.dispatch([first, second]);
  await driver.untilBlockedInCall(1);
  await admin.query("SELECT pg_cancel_backend($1)", [driver.backend(1).pid]);
  await driver.untilBlocked(1, "DISCARD ALL");
  await holder.query("COMMIT");
  await expectEffects([first, second]);
  assert.equal((await results([second]))[0]?.output, "postgres\nINSERT 0 1");
});

test("runs continue after their functions were recreated", async () => {
  await admin.query(
    "DROP FUNCTION task_finish(bigint, bigint, text, integer), task_reset(), task_reset(text, text, text, integer, integer)",
  );
  await recreateObjects(admin, taskTable("public", "task"), ["task_finish", "task_reset"]);
  const chain = await claim(insert, insert, `${insert}; SELECT 1`, insert);
  driver.executor.dispatch(chain);
  await expectEffects(chain);
});

test("a session lost during pipelined runs releases those that were not sent", async () => {
  const own = await ClaimedRuns.create(database);
  const chain: Run[] = [];
  for (let index = 0; index < maxOnWire + 8; index++) {
    chain.push(await own.claim(index === 1 ? "SELECT FROM pg_advisory_lock(55)" : insert));
  }
  await admin.query("SELECT pg_advisory_lock(55)");
  own.driver.executor.dispatch(chain);
  await own.driver.untilBlocked(1, "pg_advisory_lock");
  await admin.query("SELECT pg_terminate_backend($1)", [own.driver.backend(1).pid]);
  await own.driver.message("lost");
  await admin.query("SELECT pg_advisory_unlock(55)");
  const onWire = countOnWire(chain, own.driver);
  assert.deepEqual(
    own.driver.results().map(({ id, outcome }) => [id, outcome]),
    [[chain[0]?.id, "ended"], ...chain.slice(onWire).map(({ id }) => [id, "released"])],
  );
});
