import assert from "node:assert/strict";
import { it, mock } from "node:test";
import { createLog } from "../../../src/shared/log.js";
import { Leadership } from "../../../src/supervisor/leadership.js";
import { createDatabase } from "../../support/database.js";

const database = await createDatabase("empty");
const log = createLog({ level: "silent", name: "test", write: () => {} });

function seek(name: string) {
  const leadership = new Leadership({
    target: database.target,
    name,
    log,
    isIdle: () => false,
    entryHashes: () => new Set([1]),
    frozenMs: () => 0,
  });
  const leads = new Promise<void>((resolve) => leadership.once("leader", resolve));
  const standsBy = new Promise<void>((resolve) => leadership.once("standby", resolve));
  leadership.start();
  return { leadership, leads, standsBy };
}

it("hands over to a standby at once, without polling", async () => {
  const first = seek("notified");
  await first.leads;
  const client = await database.connect();
  // From here on, no timer fires.
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const second = seek("notified");
    await second.standsBy;
    await first.leadership.stop();
    await second.leads;
    await second.leadership.stop();
  } finally {
    mock.timers.reset();
  }
  const { rows } = await client.query(
    // Locks in other databases belong to other tests.
    `SELECT FROM pg_locks WHERE locktype = 'advisory'
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
  );
  assert.deepEqual(rows, []);
});

it("hands over from one to the next as each leader stops", async () => {
  const all = Array.from({ length: 5 }, () => seek("many"));
  const remaining = new Set(all);
  let leading = 0;
  while (remaining.size > 0) {
    const leader = await Promise.race([...remaining].map((each) => each.leads.then(() => each)));
    leading += 1;
    remaining.delete(leader);
    await leader.leadership.stop();
  }
  assert.equal(leading, all.length);
});

it("leads alongside a cluster with another name", async () => {
  const one = seek("one");
  const other = seek("other");
  await Promise.all([one.leads, other.leads]);
  await Promise.all([one.leadership.stop(), other.leadership.stop()]);
});
