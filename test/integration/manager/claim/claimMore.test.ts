import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import { test } from "../../../support/limitedTest.js";
import { hearingGrowth, startManagerLoop } from "../../../support/managerLoop.js";
import { openTable } from "../../../support/taskTables.js";

const { database, user, manager } = await openTable();

beforeEach(async () => {
  await user.query("TRUNCATE task");
});

let hear: (more: number) => void = () => {};

/** Returns how many sessions a manager without sessions wants for one task with this `max` of each of these groups. */
async function wanted(groups: readonly string[], max: number): Promise<number> {
  await user.query(`INSERT INTO task (input, "group", max) SELECT 'SELECT 1', g, $2 FROM unnest($1::text[]) AS g`, [
    groups,
    max,
  ]);
  const heard = new Promise<number>((resolve) => (hear = resolve));
  const service = await startManagerLoop(manager, database.target, {
    components: (components) => hearingGrowth(components, hear),
  });
  const more = await heard;
  await service.stop();
  return more;
}

for (const [what, groups, max, sessions] of [
  ["a single due task wants one session", ["one"], 0, 1],
  ["tasks of a group that run one after another want one session", ["one", "one", "one"], 0, 1],
  ["one session is wanted for each group", ["one", "two", "three"], 0, 3],
  ["one session is wanted for each further task that its max allows to run", ["pair", "pair", "pair"], 1, 2],
] as const) {
  test(what, async () => {
    assert.equal(await wanted(groups, max), sessions);
  });
}
