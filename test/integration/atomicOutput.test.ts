import assert from "node:assert/strict";
import { ClaimedRuns } from "../support/claimedRuns.js";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { waitForRow } from "../support/waitFor.js";

const limit = 16 << 20;
const database = await createDatabase();
const large = await ClaimedRuns.of(database, undefined, limit);
const small = await ClaimedRuns.of(database, undefined, 1000);
const { admin } = large;

/** Writes, then puts out so many bytes, without its tags. */
const putsOut = (what: string, bytes: number): string =>
  `INSERT INTO effect VALUES ('${what}'); SELECT repeat('x', 1023) FROM generate_series(1, ${Math.ceil(bytes / 1024)})`;

test("output far beyond the limit: the server is kept from the end until it is cancelled, no effect", async () => {
  const { driver } = large;
  driver.onCancel = (session, id) => {
    void (async () => {
      // It can neither go on nor come to its end, however long the cancel takes.
      await waitForRow(
        admin,
        "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'ClientWrite'",
        [driver.backend(session).pid],
      );
      await driver.cancel(session, id);
    })();
  };
  const { error, output, proofs, effects } = await large.run(putsOut("far", 200 << 20));
  assert.match(error ?? "", /^ERROR: {2}output exceeds 16777216 bytes\nSTATEMENT: {2}INSERT/);
  assert.ok((output?.length ?? 0) > limit - 2048);
  assert.deepEqual([proofs, effects], [0, []]);
});

test("output that is too large by less than what the way to us holds: the row says that its effect stays", async () => {
  const { driver } = large;
  driver.onCancel = (session, id) => {
    void (async () => {
      await waitForRow(admin, "SELECT FROM effect WHERE what = 'close'");
      await driver.cancel(session, id);
    })();
  };
  const { error, committed, proofs, effects } = await large.run(putsOut("close", limit + 4096));
  assert.match(
    error ?? "",
    /^ERROR: {2}output exceeds 16777216 bytes\nDETAIL: {2}Its effect had been committed by then\.\nSTATEMENT/,
  );
  assert.deepEqual([committed, proofs, effects], [true, 1, ["close"]]);
  await admin.query("TRUNCATE effect");
});

test("with a small limit output that is one line too large leaves no effect", async () => {
  for (let time = 0; time < 20; time += 1) {
    const { error, committed, proofs, effects } = await small.run(putsOut("small", 1024));
    assert.match(error ?? "", /^ERROR: {2}output exceeds 1000 bytes\nSTATEMENT/);
    assert.deepEqual([committed, proofs, effects], [false, 0, []]);
  }
});

test("the session goes on after output that was too large", async () => {
  const { error, output } = await large.run("SELECT 'next'");
  assert.deepEqual([error, output], [null, "next"]);
});
