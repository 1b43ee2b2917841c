import type { Client } from "../../src/shared/postgres/client.js";
import type { Random } from "./random.js";

/**
 * Random tasks that use the optional columns, and random changes to them. What is inserted and changed is noted by the
 * same statement, so that the notes are right even if the server dies. optionJudge.ts compares them with what happened.
 */

/** Whether the tasks of the table run as several roles and its owner. */
export const hasUsers = process.env["CHAOS_USERS"] === "1";

/** Value of `data` in the rows of these tasks. */
const mark = "options";

/** SQL condition that is true for the rows of these tasks. */
export const hasOptions = `data IS NOT DISTINCT FROM '${mark}'`;

/** Keys of the tasks that repeat every second. Tasks without a rule are inserted with the same keys. */
const ruleKeys = ["rule 0", "rule 1", "rule 2"];

/** Number of waiting and running tasks above which no more are inserted. */
const maxOpen = 100;

/** The maximum number of inserted tasks that a producer remembers, so that others can wait for them. */
const maxRecent = 30;

const groups = Array.from({ length: 8 }, (_, each) => ({ name: `options ${each}`, max: each % 4 }));

/** Groups in which nothing but their keys keeps tasks from running. */
const roomyGroups = ["roomy 0", "roomy 1"].map((group) => ({ group, max: 20 }));

/** Errors of failing tries, and lists of errors that are retried. */
const failures = [
  { code: "P0001", sqlstate: null, isRetried: true },
  { code: "42P01", sqlstate: null, isRetried: false },
  { code: "40001", sqlstate: ["40"], isRetried: true },
  { code: "P0001", sqlstate: ["40"], isRetried: false },
];

const given = "nullif(current_setting('pg_task.args', true), '')::jsonb";

/** Values for `args`, and inputs that pass them to `perform`. */
const values = [
  { args: null, input: "SELECT perform(NULL)" },
  { args: [7, "it's", null], input: "SELECT perform(jsonb_build_array($1::integer, $2::text, $3::text))" },
  { args: { a: [1, "two"], b: null }, input: "SELECT perform($1)" },
  { args: [1, 2], input: `SELECT 1; SELECT perform(${given})` },
];

/** Creates the tables for notes, the function that the tasks call, and the tasks that repeat. */
export async function startOptions(client: Client): Promise<void> {
  await client.query(tables);
  await client.query(functions);
  for (const [index, key] of ruleKeys.entries()) {
    await client.query(
      `INSERT INTO task (data, input, "group", max, key, rule, overlap, retry, backoff)
       VALUES ($1, 'SELECT perform(NULL)', $2, 3, $2, '* * * * * *', $3, $4, '20 ms')`,
      [mark, key, index === 1, index === 2 ? 1 : 0],
    );
  }
}

const tables = `
  -- What tasks were inserted with. fails: how many tries fail, with the SQLSTATE code.
  CREATE TABLE promised (task bigint PRIMARY KEY, "group" text, max integer, key text, after bigint[], upon text,
    retry integer, fails integer, code text, is_retried boolean, args jsonb, collects boolean, vanishes boolean, gap interval);
  CREATE TABLE collected (task bigint, value bigint);
  CREATE SEQUENCE collected_value;
  -- What was done to tasks afterwards.
  CREATE TABLE touched (task bigint, what text, at timestamptz DEFAULT clock_timestamp());
  -- The effects of tasks. Those with a gap commit theirs in the middle of the run.
  CREATE TABLE performed (task bigint, attempt integer, given jsonb, begun timestamptz, ended timestamptz);
  CREATE TABLE started (task bigint, at timestamptz);`;

/**
 * `hold_key` keeps a lock until the end of the run. If another run has the lock of the same key, the task fails, and is
 * not retried. So two runs of a key are noticed even if they are rolled back.
 */
const functions = `
CREATE FUNCTION hold_key(own task) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  number integer := hashtext(own.key) & 2147483647;
  holder bigint;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1002, (own.id & 2147483647)::integer);
  IF pg_try_advisory_xact_lock(1001, number) THEN RETURN; END IF;
  SELECT h.objid::bigint INTO holder FROM pg_locks AS k JOIN pg_locks AS h ON h.pid = k.pid AND h.classid = 1002
  WHERE k.locktype = 'advisory' AND k.classid = 1001 AND k.objid::bigint = number AND k.granted;
  RAISE 'key runs twice, in task % as well', holder USING ERRCODE = '42K01';
END $$;
CREATE FUNCTION perform(given jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  own task%ROWTYPE;
  promise promised%ROWTYPE;
BEGIN
  SELECT * INTO STRICT own FROM task WHERE id = current_setting('pg_task.id')::bigint;
  SELECT * INTO promise FROM promised WHERE task = own.id;
  IF own.key IS NOT NULL THEN
    PERFORM hold_key(own);
    -- So that others of the key are inserted meanwhile. The key whose schedule overlaps repeats every second.
    PERFORM pg_sleep(random() * CASE own.key WHEN 'rule 1' THEN 1.5 ELSE 0.3 END);
  END IF;
  PERFORM pg_sleep(random() * 0.05);
  -- The first try of a successor with retry fails. With overlap, the next successor would take its place each time.
  IF coalesce(own.attempt, 0) < coalesce(promise.fails, CASE WHEN own.sqlstate IS NULL AND own.retry > 0 AND own.overlap IS NOT TRUE THEN 1 END, 0) THEN
    RAISE 'planned failure' USING ERRCODE = coalesce(promise.code, 'P0001');
  END IF;
  INSERT INTO performed VALUES (own.id, coalesce(own.attempt, 0), given, now(), clock_timestamp());
  PERFORM pg_sleep(random() * 0.05);
  UPDATE performed SET ended = clock_timestamp() WHERE task = own.id AND begun = now();
  RETURN false;
END $$`;

/** Inserts and changes tasks. Each producer has its own. */
export class OptionProducer {
  readonly #random: Random;
  /** Ids of tasks that were inserted last. */
  #recent: string[] = [];

  constructor(random: Random) {
    this.#random = random;
  }

  async step(client: Client): Promise<void> {
    const random = this.#random;
    const { open, gaps } = await countOpen(client);
    if (open < maxOpen) {
      await this.#insertSome(client);
      // Changed less often, so that most tasks reach their end.
      if (random.below(2) === 0) await touch(client, random);
    }
    if (gaps < 4) await insertGap(client, random);
    // At most one of each key waits, so there can be no more of them than are run.
    await insert(client, { ...randomTask(random, true, []), ...random.pick(roomyGroups) });
  }

  /** Inserts up to six tasks in one transaction. They can wait for each other, and for those inserted before. */
  async #insertSome(client: Client): Promise<void> {
    const random = this.#random;
    const count = random.between(1, 6);
    // Two transactions that insert several keys each could wait for each other.
    const keyed = random.below(count + 2);
    const ids: string[] = [];
    await client.query("BEGIN");
    for (let each = 0; each < count; each += 1) {
      const task = randomTask(random, each === keyed, [...this.#recent, ...ids]);
      ids.push(...(await insert(client, task)));
    }
    await client.query("COMMIT");
    this.#recent = [...this.#recent, ...ids].slice(-maxRecent);
  }
}

/** The columns of a task to insert, and what is noted of it. */
interface NewTask {
  readonly input: string;
  readonly group: string;
  readonly max: number;
  readonly key: string | null;
  readonly retry: number | null;
  readonly sqlstate: readonly string[] | null;
  readonly after: readonly string[] | null;
  readonly upon: string | null;
  readonly args: unknown;
  readonly delayMs: number;
  readonly vanishes: boolean;
  readonly fails: number;
  readonly code: string;
  readonly isRetried: boolean;
  readonly collects: boolean;
}

function randomTask(random: Random, keyed: boolean, older: readonly string[]): NewTask {
  const retry = random.below(5) < 2 ? random.between(1, 3) : null;
  const kind = keyed ? random.pick(["key", "key", "collect", "collect", "collect", "rule"]) : "";
  const after = older.length > 0 && random.below(2) === 0 ? pickSome(random, older) : null;
  const { args, input } = kind === "collect" ? { args: null, input: `SELECT perform(${given})` } : random.pick(values);
  // Nothing would be known of a successor without a row.
  const vanishes = kind !== "rule" && random.below(6) === 0 && !input.includes(";");
  const { name, max } = random.pick(groups);
  return {
    // Without output, the row is deleted if it has `delete`.
    input: vanishes ? input.replace(/^SELECT (perform.*)$/, "SELECT FROM $1 AS p WHERE p") : input,
    group: name,
    max,
    key: kind === "" ? null : kind === "rule" ? random.pick(ruleKeys) : `${kind} ${random.below(3)}`,
    retry,
    after,
    upon: after === null ? null : random.pick([null, "done", "fail", "end"]),
    args,
    delayMs: random.below(4) === 0 ? random.below(200) : 0,
    vanishes,
    fails: retry === null ? (random.below(8) === 0 ? 1 : 0) : random.below(5),
    ...random.pick(failures),
    collects: kind === "collect",
  };
}

function pickSome(random: Random, list: readonly string[]): string[] {
  return [...new Set(Array.from({ length: random.between(1, 4) }, () => random.pick(list)))];
}

/** @returns the task's id, if none waits with its key already */
async function insert(client: Client, task: NewTask): Promise<string[]> {
  const isCollect = task.collects;
  const { rows } = await client.query<{ id: string }>(
    `WITH value AS MATERIALIZED (SELECT nextval('collected_value') AS value WHERE ${isCollect}),
     inserted AS (
       INSERT INTO task (data, input, "group", max, key, retry, backoff, sqlstate, after, upon, args, delete, plan)
       SELECT '${mark}', $1, $2, $3::integer, $4, $5::integer, '40 ms', $6::text[], $7::bigint[], $8,
         coalesce((SELECT jsonb_build_array(value) FROM value), $9::jsonb), $10::boolean,
         clock_timestamp() + $11::integer * interval '1 ms'
       ON CONFLICT ${isCollect ? `(${hasUsers ? "role, key" : "key"}) WHERE key IS NOT NULL AND ready IS NOT NULL DO UPDATE SET args = task.args || excluded.args` : "DO NOTHING"}
       RETURNING id, "group", max, key, after, upon, retry, args, delete
     ), noted AS (
       INSERT INTO promised (task, "group", max, key, after, upon, retry, fails, code, is_retried, args, collects, vanishes)
       SELECT id, "group", max, key, after, upon, retry, $12::integer, $13, $14::boolean, args, ${isCollect}, delete FROM inserted
       ON CONFLICT DO NOTHING
     ), collecting AS (INSERT INTO collected SELECT id, value FROM inserted CROSS JOIN value)
     SELECT id::text AS id FROM inserted`,
    [
      task.input,
      task.group,
      task.max,
      task.key,
      task.retry,
      task.sqlstate,
      task.after,
      task.upon,
      task.args === null ? null : JSON.stringify(task.args),
      task.vanishes,
      task.delayMs,
      task.fails,
      task.code,
      task.isRetried,
    ],
  );
  return rows.map(({ id }) => id);
}

async function insertGap(client: Client, random: Random): Promise<void> {
  await client.query(
    `WITH inserted AS (
       INSERT INTO task (data, input, "group", max, gap)
       VALUES ('${mark}', $1, $2, 2, $3::integer * interval '1 ms') RETURNING id, "group", max, gap
     ) INSERT INTO promised (task, "group", max, fails, gap) SELECT id, "group", max, 0, gap FROM inserted`,
    [
      `INSERT INTO started VALUES (current_setting('pg_task.id')::bigint, now()); COMMIT; SELECT pg_sleep(${random.next() * 0.4})`,
      `gap ${random.below(2)}`,
      random.pick([150, 300]),
    ],
  );
}

/** Changes of tasks: the condition on the row, and what is changed. */
const touches = [
  { what: "stop", when: "state IN ('PLAN', 'TAKE', 'WORK')", change: "UPDATE task SET state = 'STOP'" },
  { what: "stop", when: "state IN ('TAKE', 'WORK')", change: "UPDATE task SET state = 'STOP'" },
  { what: "delete", when: "state IN ('PLAN', 'TAKE', 'WORK')", change: "DELETE FROM task" },
  { what: "delete", when: "state IN ('TAKE', 'WORK')", change: "DELETE FROM task" },
  { what: "run again", when: "state IN ('TAKE', 'WORK')", change: "UPDATE task SET state = 'PLAN'" },
  { what: "put off", when: "state = 'PLAN'", change: "UPDATE task SET plan = now() + interval '20 ms'" },
  { what: "let go", when: "state = 'PLAN' AND wait >= 0", change: "UPDATE task SET after = NULL, upon = NULL" },
];

/**
 * Changes a task, unless it belongs to a schedule.
 *
 * @param condition another condition on the task, which is called `t`
 */
export async function touch(client: Client, random: Random, condition = "true"): Promise<void> {
  const { what, when, change } = random.pick(touches);
  const isChanged = `${hasOptions} AND rule IS NULL AND id IN (SELECT task FROM promised) AND ${when}`;
  await client.query(
    `WITH changed AS (
       ${change} WHERE ${isChanged} AND id = ANY (ARRAY(
         SELECT id FROM task AS t WHERE ${isChanged} AND ${condition} ORDER BY random() LIMIT 1)) RETURNING id
     ) INSERT INTO touched (task, what) SELECT id, $1 FROM changed`,
    [what],
  );
}

/** @returns how many tasks have not ended, without those that repeat, and how many of these have a gap */
async function countOpen(client: Client): Promise<{ readonly open: number; readonly gaps: number }> {
  const { rows } = await client.query<{ open: number; gaps: number }>(
    `SELECT count(*)::integer AS open, count(*) FILTER (WHERE gap > '0')::integer AS gaps FROM task
     WHERE (state IN ('PLAN', 'TAKE', 'WORK') OR owner IS NOT NULL) AND ${hasOptions} AND rule IS NULL`,
  );
  return rows[0] ?? { open: 0, gaps: 0 };
}

/**
 * Once all that repeat have run after `since`, stops them.
 *
 * @returns what has not ended yet
 */
export async function finishOptions(client: Client, since: string): Promise<unknown[]> {
  const { rows } = await client.query(
    `SELECT key, (SELECT jsonb_agg(t) FROM (
         SELECT id, state, error, attempt, retry, sqlstate, input, args FROM task WHERE task.key = k.key ORDER BY id DESC LIMIT 3) AS t) AS last
     FROM unnest($1::text[]) AS k(key) WHERE NOT EXISTS (
       SELECT FROM performed JOIN task ON id = task WHERE task.key = k.key AND begun > $2)`,
    [ruleKeys, since],
  );
  if (rows.length === 0) {
    await client.query(`UPDATE task SET state = 'STOP' WHERE ${hasOptions} AND rule IS NOT NULL AND state = 'PLAN'`);
  }
  const { rows: open } = await client.query(
    `SELECT id, state::text, key, after, plan, due, wait, owner, take, error FROM task
     WHERE ${hasOptions} AND (state IN ('PLAN', 'TAKE', 'WORK') OR owner IS NOT NULL) ORDER BY id LIMIT 10`,
  );
  const { rows: lines } = await client.query("SELECT * FROM task_after LIMIT 10");
  return [...rows, ...open, ...lines];
}
