import assert from "node:assert/strict";
import { ClaimedRuns } from "../../../support/claimedRuns.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { waitForRow } from "../../../support/tasks.js";

const limit = 64 << 20;
const database = await createDatabase();
const large = await ClaimedRuns.create(database, undefined, limit);
const small = await ClaimedRuns.create(database, undefined, 1000);
const { admin } = large;

/** Returns an input that writes a row and then outputs this many bytes, besides command tags. */
const writesAndOutputs = (what: string, bytes: number): string =>
  `INSERT INTO effect VALUES ('${what}'); SELECT repeat('x', 1023) FROM generate_series(1, ${Math.ceil(bytes / 1024)})`;

test("output far beyond the limit blocks the server until the cancel, without effect", async () => {
  const { driver } = large;
  driver.onCancel = (session, id) => {
    void (async () => {
      // The backend is blocked while it sends output, so it can neither continue nor finish, however long the cancel
      // takes.
      await waitForRow(admin, "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'ClientWrite'", [
        driver.backend(session).pid,
      ]);
      await driver.cancel(session, id);
    })();
  };
  const { error, output, proofs, effects } = await large.run(writesAndOutputs("far", 200 << 20));
  assert.match(error ?? "", /^ERROR: {2}output exceeds 67108864 bytes \(pg_task\.output\)\nSTATEMENT: {2}INSERT/);
  assert.ok((output?.length ?? 0) > limit - 2048);
  assert.deepEqual([proofs, effects], [0, []]);
});

test("output slightly beyond the limit, in rows or in one value, leaves no effect", async () => {
  const { driver } = large;
  driver.onCancel = (session, id) => void driver.cancel(session, id);
  const value = `INSERT INTO effect VALUES ('value'); SELECT repeat('x', ${10 << 20}); SELECT repeat('x', ${limit - (9 << 20)})`;
  for (const input of [writesAndOutputs("close", limit + 4096), value]) {
    const { error, committed, proofs, effects } = await large.run(input);
    assert.match(error ?? "", /^ERROR: {2}output exceeds 67108864 bytes \(pg_task\.output\)\nSTATEMENT/);
    assert.deepEqual([committed, proofs, effects], [false, 0, []]);
  }
});

test("output near the limit is complete if the cancel arrives after the commit", async () => {
  const { driver } = large;
  driver.onCancel = (session, id) => {
    void (async () => {
      await waitForRow(admin, "SELECT FROM effect WHERE what = 'near'");
      await driver.cancel(session, id);
    })();
  };
  const bytes = limit - (47 << 20);
  const { error, output, committed, proofs, effects } = await large.run(writesAndOutputs("near", bytes));
  assert.deepEqual([error, committed, proofs, effects], [null, true, 1, ["near"]]);
  assert.equal(output?.length, "INSERT 0 1\n".length + bytes - 1);
  await admin.query("TRUNCATE effect");
});

test("a run with output near the limit is repeated with one effect if the cancel arrives before its end", async () => {
  const { driver } = large;
  let cancels = 0;
  await admin.query("SELECT pg_advisory_lock(7)");
  driver.onCancel = (session, id) => {
    cancels += 1;
    void (async () => {
      await driver.untilBlocked(session, "advisory");
      await driver.cancel(session, id);
      await admin.query("SELECT pg_advisory_unlock(7)");
    })();
  };
  const bytes = limit - (47 << 20);
  const { error, output, committed, proofs, effects } = await large.run(
    `${writesAndOutputs("again", bytes)}; SELECT pg_advisory_xact_lock_shared(7)`,
  );
  assert.deepEqual([error, committed, proofs, effects], [null, true, 1, ["again"]]);
  assert.equal(output?.length, "INSERT 0 1\n".length + bytes);
  assert.equal(cancels, 1);
  await admin.query("TRUNCATE effect");
});

test("with a small limit, output one line too long leaves no effect", async () => {
  for (let time = 0; time < 20; time += 1) {
    const { error, committed, proofs, effects } = await small.run(writesAndOutputs("small", 1024));
    assert.match(error ?? "", /^ERROR: {2}output exceeds 1000 bytes \(pg_task\.output\)\nSTATEMENT/);
    assert.deepEqual([committed, proofs, effects], [false, 0, []]);
  }
});

test("the session continues after output beyond the limit", async () => {
  const { error, output } = await large.run("SELECT 'next'");
  assert.deepEqual([error, output], [null, "next"]);
});
