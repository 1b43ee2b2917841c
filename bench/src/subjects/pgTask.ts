import type pg from "pg";
import { one } from "../database.js";
import { startPgTask, type Configuration } from "../pgTaskProcess.js";
import { until } from "../until.js";
import { groupExpression, type Work } from "../work.js";
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
    check: async (tasks) => await checkTasks(client, tasks),
    stop: async () => await program.stop(),
  };
}

export async function addTasks(client: pg.Client, work: Work, first: number, last: number): Promise<void> {
  const group = groupExpression(work);
  // Tasks are inserted as a producer would insert them, with defaults for all other columns.
  const values = {
    input: work.input,
    ...(group === null ? { max: String(unlimited) } : { '"group"': group }),
    ...(work.key === undefined ? {} : { key: work.key }),
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

/** @throws Error unless there are this many tasks, all DONE with an output and without a crash */
export async function checkTasks(client: pg.Client, tasks: number): Promise<void> {
  const { rows, done } = await one<{ rows: number; done: number }>(
    client,
    `SELECT count(*)::integer AS rows, count(*) FILTER (
       WHERE state = 'DONE' AND output IS NOT NULL AND error IS NULL AND crash = 0
     )::integer AS done FROM task`,
  );
  if (rows === tasks && done === tasks) return;
  throw new Error(`expected ${tasks} tasks, all DONE, got ${rows}, ${done} DONE`);
}
