import type { Client } from "../../src/shared/postgres/client.js";
import type { Random } from "./random.js";

/** What becomes of a kind's tasks whatever happens: how many effects a row in that state may have. */
export interface Kind {
  readonly name: string;
  readonly input: string;
  readonly weight: number;
  /** SQL that is true of a row whose end is right; `state`, `effects`, `error`, `replanned` and `ended` are there. */
  readonly right: string;
  /** SQL of other columns of its rows, by name. */
  readonly more?: Readonly<Record<string, string>>;
}

/**
 * A state that somebody sets while it runs ends the run without effect. One that is planned anew right after its
 * commit runs again.
 */
const once = `state = 'DONE' AND (effects = 1 OR replanned AND effects > 1)
  OR state IN ('STOP', 'FAIL', 'GONE') AND effects = 0`;

const effect = "INSERT INTO effect (task) VALUES (current_setting('pg_task.id')::bigint)";

export const kinds: readonly Kind[] = [
  {
    name: "an insert",
    input: effect,
    weight: 8,
    right: once,
  },
  {
    name: "an insert that takes its time",
    input: `SELECT pg_sleep(0.02); ${effect}; SELECT pg_sleep(0.02)`,
    weight: 4,
    right: once,
  },
  {
    name: "an insert that holds its session up",
    input: `SELECT pg_sleep(0.2); ${effect}`,
    weight: 1,
    right: once,
  },
  {
    name: "an insert that is not to be repeated",
    input: effect,
    weight: 1,
    // The copy has the same ticket, which only one row may have.
    more: {
      repeat: "interval '1 second'",
      ticket: "md5(random()::text || clock_timestamp()::text)",
    },
    // Where somebody ends it between its commit and the writing of its row, it is DONE, and nothing is to be repeated.
    right: `(${once}) AND (state <> 'DONE' OR error LIKE '%ticket%' OR ended)`,
  },
  {
    name: "an insert whose row a trigger refuses to change now and then",
    input: effect,
    weight: 1,
    right: once,
  },
  {
    name: "an insert in a transaction of its own, left open",
    input: `BEGIN; ${effect}`,
    weight: 2,
    right: once,
  },
  {
    name: "an insert that fails in the end",
    input: `${effect}; SELECT 1 / 0`,
    weight: 2,
    right: "state IN ('FAIL', 'STOP', 'GONE') AND effects = 0",
  },
  {
    name: "a query",
    input: "SELECT 1",
    weight: 3,
    right: "state IN ('DONE', 'STOP', 'FAIL', 'GONE') AND effects = 0",
  },
  {
    name: "an insert that commits itself",
    input: `BEGIN; ${effect}; COMMIT`,
    weight: 2,
    right: "state = 'DONE' AND effects >= 1 OR state IN ('STOP', 'FAIL', 'GONE')",
  },
  {
    name: "what cannot be in a transaction",
    input: "VACUUM swept",
    weight: 1,
    right: "state IN ('DONE', 'STOP', 'FAIL', 'GONE') AND effects = 0",
  },
];

/** Groups, and how many others of each may run beside a task. */
const groups = Array.from({ length: 12 }, (_, each) => ({ name: `group ${each}`, max: each % 4 }));

export async function prepare(client: Client): Promise<void> {
  // Of the run's time, that from the beginning of its transaction to its effect.
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
      WHEN (OLD.data = 'an insert whose row a trigger refuses to change now and then' AND NOT NEW.replanned)
      EXECUTE FUNCTION refuse()`);
}

/**
 * The trigger refuses nothing more. Pauses before a refused row is tried again grow to a minute: one that goes on
 * being refused by chance, some seven times in a row, could not be told from one that is stuck.
 */
export async function stopRefusing(client: Client): Promise<void> {
  await client.query(
    "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
  );
}

/** More than this many waiting would only make a run longer. */
const mostWaiting = 300;

/** Inserts some tasks, and now and then changes one that is planned or runs. */
export async function produce(client: Client, random: Random): Promise<void> {
  if ((await unfinished(client)) > mostWaiting) return;
  const list = kinds.flatMap((kind) => Array<Kind>(kind.weight).fill(kind));
  const count = random.between(1, 12);
  const tasks = Array.from({ length: count }, () => ({
    kind: random.pick(list),
    group: random.pick(groups),
  }));
  for (const { kind, group } of tasks) {
    const { input, name, more = {} } = kind;
    const columns = ["input", "data", '"group"', "max", ...Object.keys(more)];
    await client.query(
      `INSERT INTO task (${columns.join(", ")}) VALUES (${["$1", "$2", "$3", "$4", ...Object.values(more)].join(", ")})`,
      [input, name, group.name, group.max],
    );
  }
  if (random.below(4) > 0) return;
  const change = random.pick(changes);
  await client.query(
    // The outer condition is read again of a row that ended meanwhile.
    `UPDATE task SET ${change} WHERE state IN ('PLAN', 'TAKE', 'WORK') AND id = ANY (ARRAY(
       SELECT id FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK') ORDER BY id DESC OFFSET $1 LIMIT 1))`,
    [random.below(20)],
  );
}

/** What is done to tasks that have not ended. */
const changes = [
  "state = 'STOP', ended = true",
  "state = 'FAIL', ended = true",
  "state = 'GONE', ended = true",
  "state = 'PLAN', replanned = true",
  "plan = now() + interval '20 ms'",
  "input = input || ' '",
];

/** How many tasks have not ended. */
export async function unfinished(client: Client): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    `SELECT count(*)::integer AS count FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK') OR owner IS NOT NULL`,
  );
  return rows[0]?.count ?? 0;
}

export interface Verdict {
  readonly tasks: number;
  /** Each a row whose end is not right, as JSON. */
  readonly wrong: readonly string[];
}

/**
 * Looks at each task's end, its effects, and what ran beside it. Every input puts something out: a row
 * without output had its run found out about only afterwards, so that its effect says when that was.
 */
export async function judge(client: Client): Promise<Verdict> {
  await client.query("CREATE INDEX ON effect (task)");
  const cases = kinds.map(({ right }, index) => `WHEN data = $${index + 1} THEN ${right}`);
  const { rows: wrong } = await client.query<{ row: string }>(
    `SELECT row_to_json(t)::text AS row FROM (
       SELECT id, data, state::text AS state, start, stop, error, crash, replanned, ended,
         (SELECT count(*) FROM effect WHERE task = task.id) AS effects FROM task
     ) AS t WHERE (CASE ${cases.join(" ")} END) IS NOT TRUE LIMIT 20`,
    kinds.map(({ name }) => name),
  );
  const { rows: runs } = await client.query<GroupRun>(
    `SELECT id, "group", max, (extract(epoch FROM start) * 1e6)::float8 AS start,
       (extract(epoch FROM stop) * 1e6)::float8 AS stop
     FROM task WHERE stop IS NOT NULL ORDER BY "group", start`,
  );
  const { rows: all } = await client.query<{ count: number }>(
    "SELECT count(*)::integer AS count FROM task",
  );
  return { tasks: all[0]?.count ?? 0, wrong: [...wrong.map(({ row }) => row), ...crowded(runs)] };
}

/** Times in µs. */
interface GroupRun {
  readonly id: string;
  readonly group: string;
  readonly max: number;
  readonly start: number;
  readonly stop: number;
}

/** Those that started beside more of their group than they may; `runs` are by group, in the order of their starts. */
function crowded(runs: readonly GroupRun[]): string[] {
  let beside: GroupRun[] = [];
  return runs.flatMap((run) => {
    beside = beside.filter(({ group, stop }) => group === run.group && stop > run.start);
    const crowd = beside.length > run.max ? [JSON.stringify({ crowded: run, beside })] : [];
    beside.push(run);
    return crowd;
  });
}
