import type { Client } from "../../src/shared/database.js";
import type { Random } from "./random.js";

/** What becomes of a kind's tasks whatever happens: how many effects a row in that state may have. */
export interface Kind {
  readonly name: string;
  readonly input: string;
  readonly weight: number;
  /** SQL that is true of a row whose end is right; `state` and `effects` are there. */
  readonly right: string;
}

const effect = "INSERT INTO effect (task) VALUES (current_setting('pg_task.id')::bigint)";

export const kinds: readonly Kind[] = [
  {
    name: "an insert",
    input: effect,
    weight: 8,
    right: "state = 'DONE' AND effects = 1 OR state = 'STOP' AND effects = 0",
  },
  {
    name: "an insert that takes its time",
    input: `SELECT pg_sleep(0.02); ${effect}; SELECT pg_sleep(0.02)`,
    weight: 4,
    right: "state = 'DONE' AND effects = 1 OR state = 'STOP' AND effects = 0",
  },
  {
    name: "an insert in a transaction of its own, left open",
    input: `BEGIN; ${effect}`,
    weight: 2,
    right: "state = 'DONE' AND effects = 1 OR state = 'STOP' AND effects = 0",
  },
  {
    name: "an insert that fails in the end",
    input: `${effect}; SELECT 1 / 0`,
    weight: 2,
    right: "state IN ('FAIL', 'STOP') AND effects = 0",
  },
  {
    name: "a query",
    input: "SELECT 1",
    weight: 3,
    right: "state IN ('DONE', 'STOP') AND effects = 0",
  },
  {
    name: "an insert that commits itself",
    input: `BEGIN; ${effect}; COMMIT`,
    weight: 2,
    right: "state = 'DONE' AND effects >= 1 OR state = 'STOP'",
  },
  {
    name: "what cannot be in a transaction",
    input: "VACUUM swept",
    weight: 1,
    right: "state IN ('DONE', 'STOP') AND effects = 0",
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
}

/** More than this many waiting would only make a run longer. */
const mostWaiting = 300;

/** Inserts some tasks, and now and then stops some that are planned or running. */
export async function produce(client: Client, random: Random): Promise<void> {
  if ((await unfinished(client)) > mostWaiting) return;
  const list = kinds.flatMap((kind) => Array<Kind>(kind.weight).fill(kind));
  const count = random.between(1, 12);
  const tasks = Array.from({ length: count }, () => ({
    kind: random.pick(list),
    group: random.pick(groups),
  }));
  await client.query(
    `INSERT INTO task (input, data, "group", max)
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[])`,
    [
      tasks.map(({ kind }) => kind.input),
      tasks.map(({ kind }) => kind.name),
      tasks.map(({ group }) => group.name),
      tasks.map(({ group }) => group.max),
    ],
  );
  if (random.below(4) > 0) return;
  await client.query(
    // The outer condition is read again of a row that ended meanwhile.
    `UPDATE task SET state = 'STOP' WHERE state IN ('PLAN', 'TAKE', 'WORK') AND id = ANY (ARRAY(
       SELECT id FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK') ORDER BY id DESC OFFSET $1 LIMIT 1))`,
    [random.below(20)],
  );
}

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
       SELECT id, data, state::text AS state, start, stop, error, crash,
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
