import type { Client } from "../../src/shared/postgres/client.js";
import type { Random } from "./random.js";
import { hasOptions } from "./options.js";
import { isScheduled } from "./schedules.js";

/** A kind of task, and what must be true when a task of this kind has ended, whatever faults occurred. */
interface Kind {
  readonly name: string;
  readonly input: string;
  readonly weight: number;
  /**
   * SQL condition that is true if the row is correct. It can use `state`, `effects`, `error`, `replanned` and `ended`.
   */
  readonly expected: string;
  /** SQL expressions for additional columns, by name. */
  readonly extraColumns?: Readonly<Record<string, string>>;
}

/**
 * Setting the state of a running task cancels its run, which then has no effect. A task that is set to PLAN right after
 * the run's commit runs again.
 */
const exactlyOnce = `state = 'DONE' AND (effects = 1 OR replanned AND effects > 1)
  OR state IN ('STOP', 'FAIL', 'GONE') AND effects = 0`;

/** The task fails, or is ended by its user, and has no effect. */
const neverOnce = "state IN ('FAIL', 'STOP', 'GONE') AND effects = 0";

const effect = "INSERT INTO effect (task) VALUES (current_setting('pg_task.id')::bigint)";

const kinds: readonly Kind[] = [
  {
    name: "an insert",
    input: effect,
    weight: 8,
    expected: exactlyOnce,
  },
  {
    name: "an insert with short waits",
    input: `SELECT pg_sleep(0.02); ${effect}; SELECT pg_sleep(0.02)`,
    weight: 4,
    expected: exactlyOnce,
  },
  {
    name: "an insert that blocks its session",
    input: `SELECT pg_sleep(0.2); ${effect}`,
    weight: 1,
    expected: exactlyOnce,
  },
  {
    name: "an insert with a timeout",
    input: effect,
    weight: 4,
    extraColumns: { timeout: "interval '1 hour'" },
    expected: exactlyOnce,
  },
  {
    name: "an insert that takes longer than its timeout",
    input: `${effect}; SELECT pg_sleep(600)`,
    weight: 1,
    extraColumns: { timeout: "interval '1 second'" },
    expected: neverOnce,
  },
  {
    name: "an insert whose successor is rejected",
    input: effect,
    weight: 1,
    // The successor would have the same ticket, which is unique.
    extraColumns: {
      repeat: "interval '1 second'",
      ticket: "md5(random()::text || clock_timestamp()::text)",
    },
    // A task whose state is set between its commit and the writing of its result becomes DONE without a successor.
    expected: `(${exactlyOnce}) AND (state <> 'DONE' OR error LIKE '%ticket%' OR ended)`,
  },
  {
    name: "an insert whose row a trigger sometimes rejects",
    input: effect,
    weight: 1,
    expected: exactlyOnce,
  },
  {
    name: "an insert in a transaction of its own, left open",
    input: `BEGIN; ${effect}`,
    weight: 2,
    expected: exactlyOnce,
  },
  {
    name: "an insert that fails at the end",
    input: `${effect}; SELECT 1 / 0`,
    weight: 2,
    expected: neverOnce,
  },
  {
    name: "a query",
    input: "SELECT 1",
    weight: 3,
    expected: "state IN ('DONE', 'STOP', 'FAIL', 'GONE') AND effects = 0",
  },
  {
    name: "an insert that commits itself",
    input: `BEGIN; ${effect}; COMMIT`,
    weight: 2,
    expected: "state = 'DONE' AND effects >= 1 OR state IN ('STOP', 'FAIL', 'GONE')",
  },
  {
    name: "a statement that cannot run in a transaction",
    input: "VACUUM swept",
    weight: 1,
    expected: "state IN ('DONE', 'STOP', 'FAIL', 'GONE') AND effects = 0",
  },
];

/** SQL condition that is true for the rows of these tasks. */
const isPlain = `NOT ${isScheduled} AND NOT ${hasOptions}`;

/** Groups and their `max`. */
const groups = Array.from({ length: 12 }, (_, each) => ({ name: `group ${each}`, max: each % 4 }));

export async function prepare(client: Client): Promise<void> {
  // Each row records one effect: `start` is the start of the run's transaction, `stop` the time of the effect.
  await client.query(
    `CREATE TABLE IF NOT EXISTS effect (task bigint NOT NULL,
       start timestamptz NOT NULL DEFAULT now(), stop timestamptz NOT NULL DEFAULT clock_timestamp())`,
  );
  await client.query("CREATE TABLE IF NOT EXISTS swept (i int)");
  await client.query(`
    ALTER TABLE task ADD COLUMN IF NOT EXISTS ticket text UNIQUE, ADD COLUMN IF NOT EXISTS replanned boolean NOT NULL DEFAULT false,
      ADD COLUMN IF NOT EXISTS ended boolean NOT NULL DEFAULT false;
    CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF pg_catalog.random() OPERATOR(pg_catalog.<) 0.3::pg_catalog.float8 THEN RAISE 'not now'; END IF; RETURN NEW;
    END $$;
    DROP TRIGGER IF EXISTS refuse ON task;
    CREATE TRIGGER refuse BEFORE UPDATE ON task FOR EACH ROW
      WHEN (OLD.data = 'an insert whose row a trigger sometimes rejects' AND NOT NEW.replanned)
      EXECUTE FUNCTION refuse()`);
  // Faults insert the rows: which operations the trigger refuses, or LOCK if the table was locked, from when until when.
  await client.query(`
    CREATE TABLE audit_failure (operations text NOT NULL, since timestamptz NOT NULL, until timestamptz NOT NULL);
    CREATE OR REPLACE FUNCTION audit_changes() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_catalog AS $$ BEGIN
      IF EXISTS (SELECT FROM audit_failure WHERE clock_timestamp() < until AND operations ~ TG_OP) THEN RAISE 'the audit queue is full'; END IF; RETURN NULL;
    END $$;
    CREATE TRIGGER audit_changes AFTER INSERT OR UPDATE OR DELETE ON task FOR EACH STATEMENT EXECUTE FUNCTION audit_changes()`);
}

/**
 * Makes the trigger accept everything. The delays between retries of a rejected row grow up to a minute, so a row that
 * the trigger happens to reject about seven times in succession could not be told from a stuck one.
 */
export async function stopRefusing(client: Client): Promise<void> {
  await client.query("CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'");
}

/** Number of unfinished tasks above which no more are inserted: they would only make the test longer. */
const maxUnfinished = 300;

/** Inserts some tasks, and sometimes changes one that has not ended. */
export async function produce(client: Client, random: Random): Promise<void> {
  if ((await unfinished(client)).length > maxUnfinished) return;
  const count = random.between(1, 12);
  for (let each = 0; each < count; each += 1) {
    const { input, name, extraColumns: more = {} } = random.pickWeighted(kinds);
    const group = random.pick(groups);
    const columns = ["input", "data", '"group"', "max", ...Object.keys(more)];
    await client.query(
      `INSERT INTO task (${columns.join(", ")}) VALUES (${["$1", "$2", "$3", "$4", ...Object.values(more)].join(", ")})`,
      [input, name, group.name, group.max],
    );
  }
  if (random.below(4) > 0) return;
  const change = random.pick(changes);
  await client.query(
    // The server checks the outer condition again if the row has changed in the meantime, for example because the task
    // has ended.
    `UPDATE task SET ${change} WHERE state IN ('PLAN', 'TAKE', 'WORK') AND id = ANY (ARRAY(
       SELECT id FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK') AND ${isPlain}
       ORDER BY id DESC OFFSET $1 LIMIT 1))`,
    [random.below(20)],
  );
}

/** SQL for changes to a task that has not ended. */
const changes = [
  "state = 'STOP', ended = true",
  "state = 'FAIL', ended = true",
  "state = 'GONE', ended = true",
  "state = 'PLAN', replanned = true",
  "plan = now() + interval '20 ms'",
  "input = input || ' '",
];

/** The tasks that have not ended, without those of schedules, which go on, and those with options. */
export async function unfinished(client: Client): Promise<object[]> {
  const { rows } = await client.query(
    `SELECT id, state::text, data, owner, take, start, crash, "group" FROM task
     WHERE (state IN ('PLAN', 'TAKE', 'WORK') OR owner IS NOT NULL) AND ${isPlain} ORDER BY id`,
  );
  return rows;
}

/**
 * Checks each task's final state and effects, and, using `start` and `stop`, the group limits. Returns the number of tasks,
 * and the incorrect rows as JSON.
 */
export async function verify(client: Client): Promise<{ readonly tasks: number; readonly wrong: readonly string[] }> {
  await client.query("CREATE INDEX ON effect (task)");
  const cases = kinds.map(({ expected: right }, index) => `WHEN data = $${index + 1} THEN ${right}`);
  const { rows: wrong } = await client.query<{ row: string }>(
    `SELECT row_to_json(t)::text AS row FROM (
       SELECT id, data, state::text AS state, start, stop, error, crash, replanned, ended,
         (SELECT count(*) FROM effect WHERE task = task.id) AS effects FROM task WHERE ${isPlain}
     ) AS t WHERE (CASE ${cases.join(" ")} END) IS NOT TRUE LIMIT 20`,
    kinds.map(({ name }) => name),
  );
  const { rows: runs } = await client.query<GroupRun>(
    `SELECT id, "group", max, (extract(epoch FROM start) * 1e6)::float8 AS start,
       (extract(epoch FROM stop) * 1e6)::float8 AS stop
     FROM task WHERE stop IS NOT NULL AND ${isPlain} ORDER BY "group", start`,
  );
  const { rows: all } = await client.query<{ count: number }>(
    `SELECT count(*)::integer AS count FROM task WHERE ${isPlain}`,
  );
  return {
    tasks: all[0]?.count ?? 0,
    wrong: [...wrong.map(({ row }) => row), ...overGroupLimit(runs)],
  };
}

/** A run of a group. Times are in µs. */
interface GroupRun {
  readonly id: string;
  readonly group: string;
  readonly max: number;
  readonly start: number;
  readonly stop: number;
}

/**
 * Returns the runs that started while more other runs of their group were active than `max` allows.
 *
 * @param runs ordered by group and start
 */
function overGroupLimit(runs: readonly GroupRun[]): string[] {
  let beside: GroupRun[] = [];
  return runs.flatMap((run) => {
    beside = beside.filter(({ group, stop }) => group === run.group && stop > run.start);
    const violation = beside.length > run.max ? [JSON.stringify({ crowded: run, beside })] : [];
    beside.push(run);
    return violation;
  });
}
