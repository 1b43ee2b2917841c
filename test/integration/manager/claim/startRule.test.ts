import assert from "node:assert/strict";
import { claimFull } from "../../../../src/manager/claim/claimFull.sql.js";
import { startBlockers, type StartBlocker } from "../../../../src/manager/schema/startRule.sql.js";
import { claimOf } from "../../../support/claims.js";
import { test } from "../../../support/limitedTest.js";
import { openTable } from "../../../support/taskTables.js";

const { user, manager, table } = await openTable();

const quietMs = 60_000;

/** For each group, the columns of its only task, and why the task must not start. */
const groups: Readonly<Record<string, readonly [columns: string, blockers: readonly StartBlocker[]]>> = {
  free: ["max => 0", []],
  first: ["max => 0", []],
  waits: ["after => ARRAY[1], plan => 'infinity'", ["waits-for-others"]],
  "paused schedule": ["repeat => '1 day', plan => 'infinity'", ["schedule-paused"]],
  never: ["plan => 'infinity'", ["never-due"]],
  "tried again": ["attempt => 1, retry => 2, plan => '1 day'", ["retry"]],
  planned: ["plan => '1 day'", ["not-due"]],
  late: ["active => '1 s', plan => '-1 day'", ["too-late"]],
  "query first": ["active => '1 s', plan => '-1 day', wait => -1", []],
  held: ["max => 0", ["group-paused"]],
  "held and late": ["active => '1 s', plan => '-1 day'", ["too-late", "group-paused"]],
  "without ready": ["ready => NULL", ["out-of-queue"]],
  "with a key": ["key => 'runs'", ["key-runs"]],
  "of another chain": ["max => 0", ["turn"]],
  "late and of another chain": ["active => '1 s', plan => '-1 day'", ["too-late", "turn"]],
  alone: ["alone => 'group'", ["turn"]],
  "next alone": ["alone => 'group', turn => 1", ["turn"]],
  "has its turn": ["alone => 'group', turn => 2", []],
  full: ["max => 0", ["group-limit"]],
  roomy: ["max => 1", []],
  gap: ["gap => '2 min'", ["gap"]],
  "short gap": ["gap => '30 s'", []],
};
const running: Readonly<Record<string, number>> = { full: 1, roomy: 1 };

/** Inserts the task of a group. Its `plan` is relative to now. */
async function insert(group: string, columns: string): Promise<void> {
  const given = new Map(
    columns.split(/, (?=\w+ =>)/).map((each) => {
      const [name = "", value = ""] = each.split(" => ");
      return [name, name === "plan" && value !== "'infinity'" ? `now() + interval ${value}` : value];
    }),
  );
  const { rows } = await user.query<{ id: string }>(
    `INSERT INTO task (input, "group"${given.has("plan") ? ", plan" : ""}) VALUES ('SELECT 1', $1${given.has("plan") ? `, ${given.get("plan")}` : ""}) RETURNING id`,
    [group],
  );
  given.delete("plan");
  if (given.size === 0) return;
  // The triggers of the table would replace some of these values.
  await user.query("SET session_replication_role = replica");
  const sets = [...given].map(([name, value]) => `${name} = ${value}`);
  await user.query(`UPDATE task SET ${sets.join(", ")}${given.has("after") ? ", wait = 1" : ""} WHERE id = $1`, [
    rows[0]?.id,
  ]);
  await user.query("RESET session_replication_role");
}

test("the claim takes the due tasks for which the rule has no reason against it, and no others", async () => {
  for (const [group, [columns]] of Object.entries(groups)) await insert(group, columns);
  await user.query(`INSERT INTO task_pause ("group") VALUES ('held'), ('held and late')`);
  await user.query(
    `INSERT INTO task_turn (turn, "group", begun) VALUES (1, 'next alone', false), (2, 'has its turn', true), (3, 'of another chain', true), (4, 'late and of another chain', false)`,
  );
  const circumstances = {
    running:
      'coalesce((SELECT r.count FROM unnest($1::text[], $2::integer[]) AS r(name, count) WHERE r.name = t."group"), 0)',
    keyRuns: "t.key = 'runs'",
    quietMs: String(quietMs),
  };
  const { rows } = await manager.query<{
    group: string;
    hash: number;
    ready: boolean | null;
    blockers: StartBlocker[];
  }>(
    `SELECT t."group", t.hash, t.ready, ${startBlockers(table, circumstances)} AS blockers FROM ${table.qualified} AS t ORDER BY t.id`,
    [Object.keys(running), Object.values(running)],
  );
  assert.deepEqual(
    Object.fromEntries(rows.map(({ group, blockers }) => [group, blockers])),
    Object.fromEntries(Object.entries(groups).map(([group, [, blockers]]) => [group, blockers])),
  );
  const hashes = new Map(rows.map(({ group, hash }) => [hash, running[group] ?? 0]));
  const request = { ...claimOf(hashes, { sessions: rows.length, quietMs }), runningKeys: ["runs"] };
  const { claimed } = await claimFull(manager, table, request);
  assert.deepEqual(
    claimed.map(({ group }) => group).toSorted(),
    rows.flatMap(({ group, blockers }) => (blockers.length === 0 ? group : [])).toSorted(),
  );
});
