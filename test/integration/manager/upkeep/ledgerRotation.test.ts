import assert from "node:assert/strict";
import { LedgerRotation } from "../../../../src/manager/upkeep/ledgerRotation.js";
import { readColumnSet } from "../../../../src/manager/schema/columnSet.js";
import { completeFull } from "../../../../src/manager/results/completeFull.sql.js";
import type { Client } from "../../../../src/shared/postgres/client.js";
import { createLog } from "../../../../src/shared/log.js";
import { test } from "../../../support/limitedTest.js";
import { createComponents } from "../../../support/managerComponents.js";
import { openTable, ownerOf } from "../../../support/taskTables.js";
import { only } from "../../../support/tasks.js";
import { claimTime } from "../../../../src/manager/sql/fragments.sql.js";
import { retryPolicy } from "../../../support/retryPolicy.js";
import { connectTo } from "../../../support/connectTo.js";

const { database, user, manager, table } = await openTable();
const shape = await readColumnSet(manager, table);
let emptied = 0;
const log = createLog({
  level: "debug",
  name: "test",
  write: (line) => {
    if (line.includes("ledger emptied")) emptied += 1;
  },
});

const tasks = 400;
const workers = 4;

interface Claimed {
  readonly id: string;
  readonly hash: number;
  readonly taken: string;
}

/** Creates the components of a new manager, which knows nothing about earlier runs. */
function newManager() {
  const { groups, orphans } = createComponents(database.target, {}, { log });
  return { groups, orphans, ledgers: new LedgerRotation({ table, log, limits: { runs: 7, ms: 1e9, settleMs: 0 } }) };
}

async function claimOne(owner: string): Promise<Claimed | undefined> {
  const { rows } = await manager.query<Claimed>(
    `UPDATE public.task AS t SET state = 'WORK', owner = $1, take = clock_timestamp(), ready = NULL, start = now()
     WHERE id = (SELECT id FROM public.task WHERE ready ORDER BY id LIMIT 1)
     RETURNING id, hash, ${claimTime("t")} AS taken`,
    [owner],
  );
  return rows[0];
}

test("each effect happens once, whatever sessions die and managers change while ledgers rotate", async (t) => {
  await user.query(
    `CREATE TABLE effect (id bigint); INSERT INTO task (input, "group") SELECT '', i FROM generate_series(1, ${tasks}) AS i`,
  );
  let own = newManager();
  const state = { remaining: tasks, settledByLedger: 0 };
  let deaths = 0;

  async function run(session: Client, { id, taken }: Claimed, owner: string): Promise<void> {
    const ledger = own.ledgers.countRun();
    await session.query("BEGIN");
    await session.query("INSERT INTO effect VALUES ($1)", [id]);
    await session.query("SELECT public.task_finish($1, $2, $3, $4)", [id, taken, owner, ledger]);
    await session.query("COMMIT");
  }

  async function work(): Promise<void> {
    while (state.remaining > 0) {
      const session = await connectTo(database.target);
      const owner = await ownerOf(session);
      let claimed: Claimed | undefined;
      try {
        await session.query("SET application_name = 'worker'");
        for (;;) {
          claimed = await claimOne(owner);
          if (claimed === undefined) break;
          own.groups.addOrphan(claimed.hash);
          await run(session, claimed, owner);
          const ended = { outcome: "ended", session: 1, id: claimed.id, owner } as const;
          const times = { start: "2001-01-01T00:00:00Z", stop: "2001-01-01T00:00:01Z" };
          const result = { ...ended, ...times, output: "", error: null, sqlstate: null, committed: true };
          // One in five runs loses its session after its effect was committed.
          if (Math.random() < 0.2) break;
          await completeFull(manager, table, shape, [result], { retry: retryPolicy });
          own.groups.removeOrphan(claimed.hash);
          claimed = undefined;
        }
      } catch {
        deaths += 1;
      }
      if (claimed !== undefined) own.orphans.add({ ...claimed, owner });
      await session.end().catch(() => {});
      if (claimed === undefined && state.remaining > 0) await rotateInOrder();
    }
  }

  /** The last rotation. Each one waits for the previous one, as in a manager. */
  let rotating = Promise.resolve();
  const rotateInOrder = (): Promise<void> => (rotating = rotating.then(rotate));

  async function rotate(): Promise<void> {
    if (Math.random() < 0.1) {
      own = newManager();
      await own.orphans.scan(manager, () => false);
    }
    await own.orphans.check(manager, { crashes: 1e6, batch: 100, isKnown: () => true });
    await own.ledgers.rotate(manager);
    const { rows } = await user.query<{ remaining: number; settledByLedger: number }>(
      `SELECT count(*) FILTER (WHERE state <> 'DONE')::int AS remaining,
         count(*) FILTER (WHERE state = 'DONE' AND stop > '2002-01-01')::int AS "settledByLedger" FROM task`,
    );
    Object.assign(state, only(rows));
  }

  async function kill(): Promise<void> {
    while (state.remaining > 0) {
      await user.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'worker' ORDER BY random() LIMIT 1`,
      );
      await rotateInOrder();
    }
  }

  await Promise.all([...Array.from({ length: workers }, work), kill()]);
  const { rows } = await user.query(
    `SELECT count(*)::int AS tasks, count(*) FILTER (WHERE n <> 1)::int AS wrong
     FROM (SELECT t.id, count(e.id) AS n FROM task AS t LEFT JOIN effect AS e ON e.id = t.id GROUP BY t.id) AS c`,
  );
  assert.deepEqual(rows, [{ tasks, wrong: 0 }]);
  t.diagnostic(`${emptied} emptied, ${deaths} died, ${state.settledByLedger} settled by their ledger`);
  for (const seen of [emptied, deaths, state.settledByLedger]) assert.ok(seen > 10, "it was put to test");
});
