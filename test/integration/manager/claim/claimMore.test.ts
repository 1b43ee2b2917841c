import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { hearingGrowth, startManagerLoop } from "../../../support/managerLoop.js";
import { openManager } from "../../../support/taskTables.js";

const database = await createDatabase();
const user = await database.connect();
const manager = await openManager(database.target);

beforeEach(async () => {
  await user.query("TRUNCATE task");
});

let hear: (more: number) => void = () => {};

/** Returns how many sessions a manager without sessions wants for these tasks, each given by its group and max. */
async function wanted(tasks: readonly (readonly [group: string, max: number])[]): Promise<number> {
  await user.query(
    `INSERT INTO task (input, "group", max) SELECT 'SELECT 1', * FROM unnest($1::text[], $2::integer[])`,
    [tasks.map(([group]) => group), tasks.map(([, max]) => max)],
  );
  const heard = new Promise<number>((resolve) => (hear = resolve));
  const service = await startManagerLoop(manager, database.target, {
    components: (components) => hearingGrowth(components, hear),
  });
  const more = await heard;
  await service.stop();
  return more;
}

test("a single due task wants one session", async () => {
  assert.equal(await wanted([["one", 0]]), 1);
});

test("tasks of a group that run one after another want one session", async () => {
  assert.equal(
    await wanted([
      ["one", 0],
      ["one", 0],
      ["one", 0],
    ]),
    1,
  );
});

test("one session is wanted for each group, and one for each further task that its max allows to run", async () => {
  assert.equal(
    await wanted([
      ["one", 0],
      ["two", 0],
      ["three", 0],
    ]),
    3,
  );
  await user.query("TRUNCATE task");
  assert.equal(
    await wanted([
      ["pair", 1],
      ["pair", 1],
      ["pair", 1],
    ]),
    2,
  );
});
