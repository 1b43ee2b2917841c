import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import { claimFull, type ClaimResult } from "../../../../src/manager/claim/claimFull.sql.js";
import { serverMajor } from "../../../support/database.js";
import { claimOf } from "../../../support/claims.js";
import { test } from "../../../support/limitedTest.js";
import { openTable } from "../../../support/taskTables.js";
import { insertTask } from "../../../support/tasks.js";

const { database, user, manager, table } = await openTable();

beforeEach(async () => {
  await user.query("TRUNCATE task RESTART IDENTITY");
});

/** Inserts a task with these columns. Ids start at 1. */
async function add(more: Record<string, string | number> = {}): Promise<void> {
  await insertTask(user, "SELECT 1", more);
}

interface Circumstances {
  readonly sessions?: number;
  readonly lookAhead?: number;
  readonly except?: readonly string[];
  readonly quietMs?: number;
}

async function claimed(circumstances: Circumstances = {}): Promise<ClaimResult> {
  const { rows } = await user.query<{ hash: number }>("SELECT DISTINCT hash FROM task");
  const groups = new Map(rows.map(({ hash }) => [hash, 0]));
  return await claimFull(manager, table, claimOf(groups, { sessions: 10, ...circumstances }));
}

/** Returns the ids of the claimed tasks, in the order in which sessions were assigned to them. */
function order({ claimed: tasks }: ClaimResult): string[] {
  return tasks.toSorted((a, b) => Number(a.owner.slice(6)) - Number(b.owner.slice(6))).map(({ id }) => id);
}

async function states(): Promise<string[]> {
  const { rows } = await user.query<{ state: string }>("SELECT state::text FROM task ORDER BY id");
  return rows.map(({ state }) => state);
}

test("a claim marks the row and returns all that a run needs", async () => {
  await add({
    input: "SELECT 7",
    group: "mine",
    timeout: "1.5 s",
    header: "false",
    delimiter: ";",
    quote: "'",
    escape: "!",
    null: "nil",
  });
  const { claimed: tasks, ...rest } = await claimed({ sessions: 1 });
  const { rows } = await user.query(
    "SELECT hash, state::text, owner, pid, ready, take IS NOT NULL AS taken, start IS NOT NULL AS started, stop, (extract(epoch FROM take) * 1000000)::bigint::text AS take, xmin::text AS version, date_part('epoch', plan) AS planned FROM task",
  );
  const [{ hash, take, version, planned, ...row } = { hash: 0, take: "", version: "", planned: 0 }]: {
    hash: number;
    take: string;
    planned: number;
    version: string;
  }[] = rows;
  assert.deepEqual(row, {
    state: "WORK",
    owner: "owner 0",
    pid: 1000,
    ready: null,
    taken: true,
    started: true,
    stop: null,
  });
  assert.deepEqual(tasks, [
    {
      kind: "claimed",
      gap_ms: 0,
      paused: false,
      id: "1",
      owner: "owner 0",
      hash,
      max: 0,
      key: null,
      startsNow: true,
      exclusive: false,
      reportsStart: false,
      mayPause: false,
      endsPlainly: true,
      overlaps: false,
      input: "SELECT 7",
      args: null,
      results: null,
      group: "mine",
      timeoutMs: 1500,
      dedicated: false,
      save: false,
      atomic: true,
      data: null,
      version,
      planned,
      claimedAt: take,
      remote: null,
      endsWithConnection: false,
      header: false,
      string: true,
      delimiter: ";",
      quote: "'",
      escape: "!",
      null: "nil",
    },
  ]);
  assert.deepEqual(rest, {
    late: [],
    more: 0,
    moreOf: new Set(),
    exclusive: 0,
    locked: [],
    heads: [],
  });
});

test("no more tasks are claimed than there are sessions, and the others that could start are counted", async () => {
  for (let each = 0; each < 6; each += 1) await add({ group: `g${each}` });
  const first = await claimed({ sessions: 2, lookAhead: 3 });
  assert.deepEqual([order(first), first.more], [["1", "2"], 3]);
  const none = await claimed({ sessions: 0, lookAhead: 10 });
  assert.deepEqual([order(none), none.more], [[], 4]);
});

test("a locked row is reported and skipped, an excepted one is skipped", async () => {
  const holder = await database.connect();
  for (let each = 0; each < 4; each += 1) await add({ group: `g${each}` });
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id = 2 FOR UPDATE");
  const first = await claimed({ except: ["4"] });
  assert.deepEqual([order(first), first.locked.map(({ id }) => id)], [["1", "3"], ["2"]]);
  await holder.query("ROLLBACK");
  assert.deepEqual(order(await claimed()), ["2", "4"]);
});

test("a row that was changed in the meantime is not claimed", async () => {
  const holder = await database.connect();
  await add();
  await holder.query("BEGIN");
  await holder.query("UPDATE task SET state = 'STOP'");
  assert.deepEqual(order(await claimed()), []);
  await holder.query("COMMIT");
  assert.deepEqual(order(await claimed()), []);
  assert.deepEqual(await states(), ["STOP"]);
});

test("late tasks are skipped and counted, but those with a pause are claimed", async () => {
  await add({ group: "a", plan: "2001-01-01", active: "1 day" });
  await add({ group: "b", plan: "2001-01-01", active: "1 day", max: -1 });
  await add({ group: "c", plan: "2001-01-01", active: "1000 years" });
  const outcome = await claimed();
  assert.deepEqual([order(outcome), outcome.late.map(({ id }) => id)], [["2", "3"], ["1"]]);
  assert.deepEqual(await states(), ["PLAN", "WORK", "WORK"]);
});

test("a task is claimed even if plan + active is later than any timestamp", async () => {
  await add({ group: "a", active: "178000000 years" });
  await add({ group: "b", plan: "-infinity", active: "178000000 years" });
  await add({ group: "c", plan: "-infinity", active: "9000 years" });
  // PostgreSQL supports infinite intervals from version 17 on.
  const endless = (await serverMajor()) < 17 ? [] : ["-infinity", "now"];
  for (const plan of endless) await add({ group: `d ${plan}`, plan, active: "infinity" });
  const outcome = await claimed();
  assert.deepEqual(order(outcome), ["1", "2", "4", "5"].slice(0, 2 + endless.length));
  assert.deepEqual(
    outcome.late.map(({ id }) => id),
    ["3"],
  );
});

test("a task with a gap is claimed only as the first of its group, and nothing behind it", async () => {
  await add({ group: "gapped", max: 9, gap: "1 s" });
  await add({ group: "gapped", max: 9 });
  await add({ group: "mixed", max: 9 });
  await add({ group: "mixed", max: 9, gap: "1 s" });
  await add({ group: "mixed", max: 9 });
  const first = await claimed();
  assert.deepEqual(order(first), ["1", "3"]);
  assert.deepEqual(
    new Map(first.heads.map(({ id, gapMs }) => [id, gapMs])),
    new Map([
      ["2", 0],
      ["4", 1000],
    ]),
  );
  assert.equal(first.more, 0);
  for (const { id, reportsStart, exclusive } of first.claimed)
    assert.deepEqual([reportsStart, exclusive], [id === "1", id === "1"]);
  assert.deepEqual(order(await claimed()), ["2", "4"]);
});

test("a task with a gap waits until its group has been quiet for as long as the gap", async () => {
  await add({ group: "quiet", max: 9, gap: "1 s" });
  await add({ group: "quiet", max: 9 });
  for (const quietMs of [-1, 0, 999.9]) {
    const { claimed: tasks, heads, more } = await claimed({ quietMs });
    assert.deepEqual([tasks, more, heads.map(({ id, gapMs }) => [id, gapMs])], [[], 0, [["1", 1000]]]);
  }
  await add({ group: "quiet", max: 10 });
  assert.deepEqual(order(await claimed({ quietMs: 0 })), ["3"]);
  assert.deepEqual(order(await claimed({ quietMs: 1000 })), ["1"]);
  assert.deepEqual(order(await claimed({ quietMs: 0 })), ["2"]);
});

test("a late task with a gap holds nothing back", async () => {
  await add({ group: "late", gap: "1 hour", plan: "2001-01-01" });
  await add({ group: "late" });
  const { claimed: tasks, late } = await claimed({ quietMs: 0 });
  assert.deepEqual([tasks.map(({ id }) => id), late.map(({ id }) => id)], [["2"], ["1"]]);
});

test("the longest gap is compared, and null is none", async () => {
  await add({ group: "long", gap: "1000 years" });
  await user.query(`INSERT INTO task (input, "group", gap) VALUES ('SELECT 1', 'none', NULL)`);
  assert.deepEqual(order(await claimed({ quietMs: 1e9 })), ["2"]);
});
