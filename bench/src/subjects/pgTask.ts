import type pg from "pg";
import { one } from "../database.js";
import { startPgTask, type Configuration } from "../pgTaskProcess.js";
import { until } from "../until.js";
import { groupExpression, triesBefore, type Shape, type Work } from "../work.js";
import { drain, makeSink, type Queue } from "./drain.js";
import type { Subject, Surroundings } from "./subject.js";

/** The best setting for many short tasks on a small machine, as found by `--only pg-task tune`. */
export const bestConfiguration: Configuration = {
  "pg_conf.max": 4,
  "pg_conf.threads": 1,
  "pg_task.fetch": 1000,
};

const unlimited = 1_000_000;
/** How many of the last tasks are polled. All tasks are checked once these are done. */
const tail = 64;
const limitMs = 2 * 3_600_000;

export function pgTask(
  name: string,
  title: string,
  configuration: Configuration,
  { does = () => true, share = 1 }: { does?: (work: Work) => boolean; share?: number } = {},
): Subject {
  return {
    name,
    title,
    share,
    needs: "nothing",
    does,
    run: async (surroundings, work, tasks) => {
      const queue = await startQueue(surroundings, configuration);
      return await drain(queue, surroundings, work, tasks);
    },
  };
}

async function startQueue({ database, node }: Surroundings, configuration: Configuration): Promise<Queue> {
  const { client, url } = database;
  await makeSink(database);
  const program = await startPgTask({ node, url, configuration });
  return {
    pid: program.pid,
    add: async (work, first, last) => await addTasks(client, work, first, last),
    done: async (tasks) => await tasksDone(client, tasks),
    check: async (work, tasks) => {
      await checkTasks(client, tasks, work);
      if (work.shape !== undefined) await checkOrder(client, tasks, work.shape);
    },
    stop: async () => await program.stop(),
  };
}

/** SQL with which a task finds out how many of its tries have failed, for a string in single quotes. */
const attempt = "coalesce((SELECT attempt FROM task WHERE id = current_setting(''pg_task.id'')::bigint), 0)";

/** Returns an SQL expression that yields the ids in `after`. The table is new, so the ids are the tasks' numbers. */
function afterExpression({ kind, size }: Shape): string {
  if (kind === "fan-in")
    return `CASE WHEN n % ${size} = 0 THEN ARRAY(SELECT generate_series(n - ${size} + 1, n - 1)) END`;
  const before = kind === "chain" ? "n - 1" : `n - (n - 1) % ${size}`;
  return `CASE WHEN (n - 1) % ${size} > 0 THEN ARRAY[${before}] END`;
}

export async function addTasks(client: pg.Client, work: Work, first: number, last: number): Promise<void> {
  const group = groupExpression(work);
  // Tasks are inserted as a producer would insert them, with defaults for all other columns.
  const values = {
    input: work.tries === undefined ? work.input : `replace(${work.input}, '${triesBefore}', '${attempt}')`,
    ...(group === null ? { max: String(unlimited) } : { '"group"': group }),
    ...(work.key === undefined ? {} : { key: work.key }),
    ...(work.tries === undefined ? {} : { retry: String(work.tries - 1), backoff: "'1 microsecond'" }),
    ...(work.shape === undefined ? {} : { after: afterExpression(work.shape) }),
  };
  await client.query(
    `INSERT INTO task (${Object.keys(values).join(", ")})
     SELECT ${Object.values(values).join(", ")} FROM generate_series(${first}, ${last}) AS n`,
  );
}

/**
 * Waits until all tasks are done. At first it polls only the last tasks, so that polling does not slow down what is
 * measured. The query orders the tasks by id, so the server finds the last ones through the index. With a condition on
 * the ids, the server would scan the whole table, because the table has no statistics yet.
 */
export async function tasksDone(client: pg.Client, tasks: number): Promise<void> {
  const open = "state IN ('PLAN', 'TAKE', 'WORK')";
  const openInTail = {
    name: "tail",
    text: `SELECT bool_or(open) AS open
      FROM (SELECT ${open} AS open FROM task ORDER BY id DESC LIMIT ${tail}) AS tail`,
  };
  const openAtAll = `SELECT EXISTS (SELECT FROM task WHERE ${open}) AS open`;
  const what = `${tasks} tasks are done`;
  const gone = async (query: pg.QueryConfig | string): Promise<boolean> =>
    (await client.query<{ open: boolean }>(query)).rows[0]?.open === false;
  await until(async () => await gone(openInTail), { everyMs: 5, limitMs, what });
  await until(async () => await gone(openAtAll), { everyMs: 10, limitMs, what });
}

/** @throws Error unless there are this many tasks, all of which have ended as they have to, without a crash */
export async function checkTasks(client: pg.Client, tasks: number, { tries }: Pick<Work, "tries"> = {}): Promise<void> {
  const ended =
    tries === 1
      ? "state = 'FAIL' AND error LIKE 'ERROR:  division by zero%'"
      : `state = 'DONE' AND output IS NOT NULL AND error IS NULL AND coalesce(attempt, 0) = ${tries === undefined ? 0 : 1}`;
  const { rows, right } = await one<{ rows: number; right: number }>(
    client,
    `SELECT count(*)::integer AS rows, count(*) FILTER (WHERE crash = 0 AND ${ended})::integer AS right FROM task`,
  );
  if (rows === tasks && right === tasks) return;
  throw new Error(`expected ${tasks} tasks, all with ${ended}, got ${rows}, ${right} with it`);
}

/** @throws Error if a task started before one that it had to wait for had ended */
async function checkOrder(client: pg.Client, tasks: number, { size }: Shape): Promise<void> {
  const expected = { waits: (tasks / size) * (size - 1), early: 0 };
  const { waits, early } = await one<typeof expected>(
    client,
    `SELECT count(*)::integer AS waits, count(*) FILTER (WHERE before.stop <= task.start IS NOT TRUE)::integer AS early
     FROM task, unnest(task.after) AS id LEFT JOIN task AS before USING (id)`,
  );
  if (waits === expected.waits && early === 0) return;
  throw new Error(`expected ${expected.waits} tasks to be waited for, got ${waits}, for ${early} not long enough`);
}
