import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";
import type { Random } from "./random.js";
import { kinds } from "./kinds.js";
import { hasOptions, hasUsers } from "./options.js";
import { isScheduled } from "./schedules.js";
import { claimTime } from "../../src/manager/sql/fragments.sql.js";

/** Users append blanks to `data`, which has the name of the kind. */
const kindName = "rtrim(data)";

/** SQL condition that is true for the rows of these tasks. */
const isPlain = `NOT ${isScheduled} AND NOT ${hasOptions}`;

/** With users, the roles as which tasks run. */
const roles = hasUsers ? ["alice", "bob", "carol", "postgres"] : [];

/** Groups and their `max`. */
const groups = Array.from({ length: 12 }, (_, each) => ({ name: `group ${each}`, max: each % 4 }));

/** They leave sessions to others while the second server does not answer. */
const remoteGroups = groups.slice(0, 4);

export async function prepare(client: Client): Promise<void> {
  // Each row records one effect: `start` is the start of the run's transaction, `stop` the time of the effect.
  await client.query(
    `CREATE TABLE IF NOT EXISTS effect (task bigint NOT NULL,
       start timestamptz NOT NULL DEFAULT now(), stop timestamptz NOT NULL DEFAULT clock_timestamp(), role name DEFAULT current_user)`,
  );
  await client.query("GRANT INSERT ON effect TO PUBLIC");
  for (const role of roles.filter((each) => each !== "postgres"))
    await client.query(`CREATE ROLE ${role}; INSERT INTO task_role VALUES ('${role}', 'task_${role}')`);
  await client.query("CREATE TABLE IF NOT EXISTS swept (i int)");
  // Ids grow, are beyond 2^32, and two in succession have the same lower 32 bits.
  await client.query(`
    CREATE FUNCTION next_id() RETURNS bigint LANGUAGE sql AS
      $$ SELECT (n << 32) + (n >> 1) FROM pg_catalog.nextval('public.task_id_seq') AS n $$;
    ALTER TABLE task ALTER COLUMN id SET DEFAULT public.next_id()`);
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
    -- What was done to tasks between their commit and their result, and how many effects they had then.
    CREATE TABLE changed_proven (task bigint NOT NULL, change text NOT NULL, effects bigint NOT NULL);
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

/** How many tasks are inserted so that some of them run. */
const burst = 20;

/** Number of unfinished tasks above which no more are inserted: they would only make the test longer. */
const maxUnfinished = 300;

/** Inserts some tasks, and sometimes changes one that has not ended. */
export async function produce(client: Client, random: Random): Promise<void> {
  if ((await unfinished(client)).length > maxUnfinished) return;
  const count = random.between(1, 12);
  for (let each = 0; each < count; each += 1) await insertOne(client, random);
  if (random.below(4) === 0) await changeOne(client, random);
}

async function insertOne(client: Client, random: Random): Promise<void> {
  const { input, name, extraColumns: more = {} } = random.pickWeighted(kinds);
  const group = random.pick("remote" in more ? remoteGroups : groups);
  const columns = ["input", "data", '"group"', "max", "role", ...Object.keys(more)];
  // Only a superuser may leave out the password in the connection string.
  const role = roles.length === 0 || "remote" in more ? null : random.pick(roles);
  await client.query(
    `INSERT INTO task (${columns.join(", ")}) VALUES (${["$1", "$2", "$3", "$4", "$5", ...Object.values(more)].join(", ")})`,
    [input, name, group.name, group.max, role],
  );
}

/** Inserts some tasks and changes others in a transaction that is prepared, and can outlive the server. */
export async function prepareTransaction(client: Client, random: Random, name: string): Promise<void> {
  // A transaction that has sent a notification cannot be prepared.
  await client.query("BEGIN; SET LOCAL pg_task.notify = off");
  for (let each = random.below(3); each >= 0; each -= 1) await insertOne(client, random);
  for (let each = random.below(4); each > 0; each -= 1) await changeOne(client, random);
  await client.query(`PREPARE TRANSACTION '${name}'`);
}

/** Changes a task that has not ended. */
async function changeOne(client: Client, random: Random): Promise<void> {
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
  "data = data || ' '",
];

/** SQL condition on `t` that is true if its run has committed its effect, and its result has not been written yet. */
export const isProven = `t.owner IS NOT NULL AND t.state IN ('TAKE', 'WORK') AND EXISTS (
  SELECT FROM (SELECT id, take, place FROM task_ledger_1 UNION ALL SELECT id, take, place FROM task_ledger_2) AS l
  WHERE l.place IS NULL AND l.id = t.id AND l.take = ${claimTime("t")})`;

/** Inserts tasks, and waits until some run, or for a while if none can. */
export async function startSome(client: Client, random: Random): Promise<void> {
  for (let each = 0; each < burst; each += 1) await insertOne(client, random);
  for (let poll = 0; poll < 100; poll += 1) {
    const { rowCount } = await client.query(`SELECT FROM task WHERE owner IS NOT NULL AND ${isPlain} LIMIT 4`);
    if (rowCount === 4) return;
    await sleep(20);
  }
}

/**
 * Changes or deletes each task whose run has committed and whose result has not been written, in a transaction that keeps
 * it from being written.
 */
export async function changeProven(client: Client, random: Random): Promise<void> {
  const { rows } = await client.query<{ id: string }>(
    `SELECT id::text AS id FROM task AS t WHERE ${isProven} AND ${isPlain}
       AND data <> 'an insert whose row a trigger sometimes rejects'`,
  );
  for (const { id } of rows) {
    const change = random.pick([...changes, "delete"]);
    await client.query("INSERT INTO changed_proven SELECT $1, $2, count(*) FROM effect WHERE task = $1", [id, change]);
    await client.query(`${change === "delete" ? "DELETE FROM task" : `UPDATE task SET ${change}`} WHERE id = $1`, [id]);
  }
}

/** The tasks that have not ended, without those of schedules, which go on, and those with options. */
export async function unfinished(client: Client): Promise<object[]> {
  const { rows } = await client.query(
    `SELECT id, state::text, data, owner, take, start, crash, "group" FROM task
     WHERE (state IN ('PLAN', 'TAKE', 'WORK') OR owner IS NOT NULL) AND ${isPlain} ORDER BY id`,
  );
  return rows;
}

/**
 * Checks each task's final state and effects, and, using `start` and `stop`, the group limits.
 *
 * @returns the number of tasks, what was done to tasks between their commit and their result, and what is wrong
 */
export async function verify(
  client: Client,
): Promise<{ readonly tasks: number; readonly proven: string; readonly wrong: readonly string[] }> {
  await client.query("CREATE INDEX ON effect (task)");
  const cases = kinds.map(({ expected: right }, index) => `WHEN ${kindName} = $${index + 1} THEN ${right}`);
  const { rows: wrong } = await client.query<{ row: string }>(
    `SELECT row_to_json(t)::text AS row FROM (
       SELECT id, data, state::text AS state, start, stop, error, crash, replanned, ended,
         (SELECT count(*) FROM effect WHERE task = task.id) AS effects FROM task WHERE ${isPlain}
     ) AS t WHERE (CASE ${cases.join(" ")} END) IS NOT TRUE LIMIT 20`,
    kinds.map(({ name }) => name),
  );
  const { rows: strays } = await client.query<{ row: string }>(
    `SELECT row_to_json(s)::text AS row FROM (
       SELECT e.task, count(*) AS effects, c.effects AS before FROM effect AS e
       LEFT JOIN changed_proven AS c ON c.task = e.task AND c.change = 'delete'
       WHERE NOT EXISTS (SELECT FROM task WHERE id = e.task) GROUP BY e.task, c.effects
     ) AS s WHERE effects IS DISTINCT FROM before LIMIT 20`,
  );
  const { rows: runs } = await client.query<GroupRun>(
    `SELECT id, concat(role, ' ', remote, ' ', "group") AS "group", max, (extract(epoch FROM start) * 1e6)::float8 AS start,
       (extract(epoch FROM stop) * 1e6)::float8 AS stop
     FROM task WHERE stop IS NOT NULL AND ${isPlain} ORDER BY 2, start`,
  );
  const { rows: foreign } = await client.query<{ row: string }>(
    `SELECT row_to_json(e)::text AS row FROM effect AS e JOIN task AS t ON t.id = e.task WHERE t.role <> e.role LIMIT 20`,
  );
  const { rows: all } = await client.query<{ count: number; proven: string | null }>(
    `SELECT count(*)::integer AS count, (SELECT string_agg(concat(n, ' ', change), ', ') FROM (
       SELECT change, count(*) AS n FROM changed_proven GROUP BY change ORDER BY change) AS c) AS proven
     FROM task WHERE ${isPlain}`,
  );
  return {
    tasks: all[0]?.count ?? 0,
    proven: all[0]?.proven ?? "none",
    wrong: [
      ...wrong.map(({ row }) => row),
      ...strays.map(({ row }) => `effects without a row, or after its row was deleted: ${row}`),
      ...foreign.map(({ row }) => `an effect as another role: ${row}`),
      ...overGroupLimit(runs),
    ],
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
