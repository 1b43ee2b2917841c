import type { Client } from "pg";
import { serverAhead } from "../clock.js";
import { end } from "../childProcess.js";
import { one, type Database } from "../database.js";
import { startPgTask, type Configuration } from "../pgTaskProcess.js";
import { checkTasks, bestConfiguration } from "./pgTask.js";
import { hear, sendToPeer, startPeer, type Peer } from "./peer.js";
import { bareQueue, bossNotified, graphileConcurrent, graphileBest, graphileDirect } from "./peers.js";
import type { Subject } from "./subject.js";

/** A queue that is given single tasks at a steady rate. */
export interface SteadySubject extends Pick<Subject, "name" | "title" | "needs"> {
  /** Starts the queue. It creates its tables if they do not exist. */
  start(database: Database, options: { readonly node: string; readonly groups: number }): Promise<SteadyQueue>;
  /**
   * Returns a script for pgbench that adds one task, in one of the groups `group 1` to `group N`. With one group, all
   * tasks may run at once.
   */
  script(groups: number): string;
  /** SQL that adds one task, as the script does, and returns its `id`. */
  add(groups: number): string;
  /** Query that returns a row if the task with the id `$1` is done. */
  readonly isDone: string;
  /** Query for the number of tasks that are not done, as `left`. */
  readonly left: string;
  /** SQL that removes all tasks. */
  readonly clear: string;
}

interface SteadyQueue {
  readonly pid: number;
  /** Returns how many ms after the beginning of its transaction each task started, for all tasks since the last call. */
  starts(): Promise<readonly number[]>;
  stop(): Promise<void>;
}

/** What each task does. It tells when it ran, so that pg-task needs nothing else to know when the task started. */
const sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8";
const group = (groups: number): string => (groups === 1 ? "NULL" : `'group ' || (random() * ${groups})::integer`);

const insert = (groups: number): string =>
  groups === 1
    ? `INSERT INTO task (input, max) VALUES ('${sql}', 1000000)`
    : `INSERT INTO task (input, "group") VALUES ('${sql}', ${group(groups)})`;

function pgTask(name: string, title: string, configuration: Configuration): SteadySubject {
  return {
    name,
    title,
    needs: "nothing",
    start: async ({ client, url }, { node }) => {
      const program = await startPgTask({ node, url, configuration });
      let last = "0";
      return {
        pid: program.pid,
        starts: async () => {
          const { rows } = await client.query<{ id: string; ms: number }>(
            "SELECT id, output::float8 - extract(epoch FROM plan) * 1000 AS ms FROM task WHERE id > $1 ORDER BY id",
            [last],
          );
          const { tasks } = await one<{ tasks: number }>(client, "SELECT count(*)::integer AS tasks FROM task");
          await checkTasks(client, tasks);
          last = rows.at(-1)?.id ?? last;
          return rows.map(({ ms }) => ms);
        },
        stop: async () => await program.stop(),
      };
    },
    script: (groups) => `${insert(groups)};`,
    add: (groups) => `${insert(groups)} RETURNING id`,
    isDone: "SELECT FROM task WHERE id = $1 AND state = 'DONE'",
    left: "SELECT count(*)::integer AS left FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK')",
    clear: "TRUNCATE task",
  };
}

/** The payload of a peer's job, as SQL. */
const payload = `json_build_object('n', 0, 'sql', '${sql}', 'at', extract(epoch FROM now()) * 1000)`;

function peer(
  name: string,
  title: string,
  setting: Peer,
  statements: Pick<SteadySubject, "add" | "isDone" | "left" | "clear">,
): SteadySubject {
  return {
    name,
    title,
    needs: "peers",
    start: async ({ client, url }, { node, groups }) => {
      const ahead = await serverAhead(client);
      const child = startPeer(setting, { node, url, setting: setting.setting({ groups, serial: false }) });
      await hear(child, "ready");
      return {
        pid: child.pid ?? 0,
        starts: async () => {
          const heard = hear(child, "started-after");
          sendToPeer(child, { type: "starts" });
          return (await heard).ms.map((ms) => ms + ahead);
        },
        stop: async () => await end(child),
      };
    },
    script: (groups) => `${statements.add(groups)};`,
    ...statements,
  };
}

const graphile = {
  add: (groups: number) =>
    `SELECT id FROM graphile_worker.add_job('run', ${payload}${groups === 1 ? "" : `, queue_name := ${group(groups)}`})`,
  // Completed jobs are deleted.
  isDone: "SELECT WHERE NOT EXISTS (SELECT FROM graphile_worker._private_jobs WHERE id = $1)",
  left: "SELECT count(*)::integer AS left FROM graphile_worker._private_jobs",
  clear: "TRUNCATE graphile_worker._private_jobs, graphile_worker._private_job_queues",
};

const boss = {
  add: (groups: number) => `WITH job AS (
      INSERT INTO pgboss.job (name, data, group_id) VALUES ('run', ${payload}, ${group(groups)}) RETURNING id
    ) SELECT id, pg_notify('pgboss_' || left(encode(sha224('pgboss'), 'hex'), 24), 'run') FROM job`,
  isDone: "SELECT FROM pgboss.job WHERE name = 'run' AND id = $1 AND state = 'completed'",
  left: "SELECT count(*)::integer AS left FROM pgboss.job WHERE name = 'run' AND state < 'completed'",
  clear: "DELETE FROM pgboss.job WHERE name = 'run'",
};

const bare = {
  add: () => `INSERT INTO bare.job (payload) VALUES (${payload}) RETURNING id`,
  isDone: "SELECT FROM bare.job WHERE id = $1 AND state = 'done'",
  left: "SELECT count(*)::integer AS left FROM bare.job WHERE state <> 'done'",
  clear: "TRUNCATE bare.job",
};

/** The subject that all others are compared with. */
export const steadyReference = "graphile-worker-best";

export const steadySubjects: readonly SteadySubject[] = [
  pgTask("pg-task-default", "pg-task, default settings", {}),
  peer(steadyReference, "graphile-worker, best setting", graphileBest, graphile),
  pgTask("pg-task", "pg-task, best setting of bursts", bestConfiguration),
  peer("graphile-worker-direct", "graphile-worker, best setting without local queue", graphileDirect, graphile),
  peer("graphile-worker-default", "graphile-worker, default settings, 24 jobs at once", graphileConcurrent, graphile),
  peer("bare-queue", "bare claim and completion, no guarantees", bareQueue, bare),
  peer("pg-boss-notified", "pg-boss, batches of 1,000, LISTEN", bossNotified, boss),
];

/** Returns how many tasks are not done. */
export async function tasksLeft(client: Client, { left }: SteadySubject): Promise<number> {
  return (await one<{ left: number }>(client, left)).left;
}
