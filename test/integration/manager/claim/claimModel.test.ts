import assert from "node:assert/strict";
import * as fc from "fast-check";
import { claimFull } from "../../../../src/manager/claim/claimFull.sql.js";
import { claimOf } from "../../../support/claims.js";
import { test } from "../../../support/limitedTest.js";
import { openTable } from "../../../support/taskTables.js";

const { user, manager, table } = await openTable();

interface Row {
  readonly group: number;
  readonly max: number;
  readonly when: "due" | "later";
  readonly state: "PLAN" | "STOP";
}

interface Situation {
  readonly rows: readonly Row[];
  /** Number of running tasks of each group, indexed by group. */
  readonly running: readonly number[];
  readonly sessions: number;
}

const groups = 4;

const situation: fc.Arbitrary<Situation> = fc.record({
  rows: fc.array(
    fc.record({
      group: fc.nat({ max: groups - 1 }),
      max: fc.integer({ min: -2, max: 4 }),
      when: fc.constantFrom("due", "due", "due", "later"),
      state: fc.constantFrom("PLAN", "PLAN", "PLAN", "STOP"),
    }),
    { maxLength: 25 },
  ),
  running: fc.array(fc.nat({ max: 3 }), { minLength: groups, maxLength: groups }),
  sessions: fc.nat({ max: 12 }),
});

/** The rule in its simplest form: start the best task that may start, then look for the next one. */
function expected({ rows, running: before, sessions }: Situation): string[] {
  const running = [...before];
  const waiting = rows.flatMap((row, index) =>
    row.when === "due" && row.state === "PLAN" ? [{ ...row, id: index + 1 }] : [],
  );
  const started: string[] = [];
  while (started.length < sessions) {
    const priority = (row: Row): number => Math.max(0, row.max) - (running[row.group] ?? 0);
    const [best] = waiting
      .filter((row) => priority(row) >= 0)
      .toSorted((a, b) => priority(b) - priority(a) || a.id - b.id);
    if (best === undefined) break;
    waiting.splice(waiting.indexOf(best), 1);
    running[best.group] = (running[best.group] ?? 0) + 1;
    started.push(String(best.id));
  }
  return started;
}

async function fill(rows: readonly Row[]): Promise<void> {
  await user.query("TRUNCATE task RESTART IDENTITY");
  await user.query(
    `INSERT INTO task (input, "group", max, plan, state)
     SELECT 'SELECT 1', 'g' || g, m, CASE w WHEN 'due' THEN now() ELSE '2100-01-01' END, s::state
     FROM unnest($1::int[], $2::int[], $3::text[], $4::text[]) WITH ORDINALITY AS r(g, m, w, s, place) ORDER BY place`,
    [
      rows.map((row) => row.group),
      rows.map((row) => row.max),
      rows.map((row) => row.when),
      rows.map((row) => row.state),
    ],
  );
}

test("whatever is in the table, a claim starts what the rule says, in its order", async () => {
  const { rows: names } = await user.query<{ hash: number }>(
    `SELECT hashtext('g' || g) AS hash FROM generate_series(0, ${groups - 1}) AS g ORDER BY g`,
  );
  await fc.assert(
    fc.asyncProperty(situation, async (each) => {
      await fill(each.rows);
      const running = each.running.map((count, group) => [names[group]?.hash ?? 0, count] as const);
      const {
        claimed,
        locked,
        late: gone,
      } = await claimFull(manager, table, claimOf(new Map(running), { sessions: each.sessions }));
      const order = claimed.toSorted((a, b) => Number(a.owner.slice(6)) - Number(b.owner.slice(6)));
      assert.deepEqual(
        order.map(({ id }) => id),
        expected(each),
      );
      assert.deepEqual([locked, gone], [[], []]);
    }),
    { numRuns: 300 },
  );
});
