import type { Client } from "../../src/shared/postgres/client.js";
import { identifier } from "../../src/shared/postgres/quoting.js";
import type { Random } from "./random.js";

/**
 * Tables with a task every few seconds, so that they fall asleep between two. With more than 16 tables, those that have
 * nothing to do when a process begins to lead begin asleep.
 */
export const sleepers = Array.from({ length: 16 }, (_, each) => `sleeper_${each}`);

/** The tables fall asleep after this time without tasks, in ms. A multiple of `pg_task.sleep`. */
export const asleepAfterMs = 1000;

export async function prepareSleepers(client: Client): Promise<void> {
  await client.query(
    "CREATE TABLE slept (sleeper text NOT NULL, task bigint NOT NULL, asleep boolean NOT NULL); CREATE TABLE woken (sleeper text, task bigint)",
  );
}

/** Inserts a task into a table that has none to run, so that only this INSERT can wake it. */
export async function wakeOne(client: Client, random: Random): Promise<void> {
  const sleeper = random.pick(sleepers);
  await client.query(
    `WITH inserted AS (
       INSERT INTO ${identifier(sleeper)} (input, plan)
       SELECT format('INSERT INTO woken VALUES (%L, current_setting(''pg_task.id'')::bigint)', $1::text),
         clock_timestamp() + $2::integer * interval '1 ms'
       WHERE NOT EXISTS (SELECT FROM ${identifier(sleeper)} WHERE state IN ('PLAN', 'TAKE', 'WORK')) RETURNING id
     ) INSERT INTO slept SELECT $1, id, NOT EXISTS (
       SELECT FROM pg_stat_activity WHERE starts_with(application_name, format('pg_task public %s ', $1::text))) FROM inserted`,
    // Some wake the table at their planned time.
    [sleeper, random.pick([0, 0, 2500])],
  );
}

const all = sleepers.map((name) => `SELECT '${name}' AS sleeper, * FROM ${name}`).join(" UNION ALL ");

export async function unfinishedSleepers(client: Client): Promise<object[]> {
  const { rows } = await client.query(
    `SELECT sleeper, id, state::text, plan, owner FROM (${all}) AS t WHERE state IN ('PLAN', 'TAKE', 'WORK') OR owner IS NOT NULL`,
  );
  return rows;
}

/** @returns how many tasks there were, how many of them found their table asleep, and those without exactly one effect */
export async function judgeSleepers(
  client: Client,
): Promise<{ readonly summary: string; readonly wrong: readonly string[] }> {
  const { rows: counts } = await client.query<{ tasks: number; asleep: number; latest: string | null }>(
    `SELECT count(*)::integer AS tasks, count(*) FILTER (WHERE asleep)::integer AS asleep,
       (SELECT max(start - plan)::text FROM (${all}) AS t) AS latest FROM slept`,
  );
  const { rows: wrong } = await client.query<{ row: string }>(
    `SELECT row_to_json(j)::text AS row FROM (
       SELECT s.sleeper, s.task, t.state::text, t.error, (SELECT count(*) FROM woken AS w WHERE w.sleeper = s.sleeper AND w.task = s.task) AS effects
       FROM slept AS s LEFT JOIN (${all}) AS t ON t.sleeper = s.sleeper AND t.id = s.task
     ) AS j WHERE (state = 'DONE' AND effects = 1) IS NOT TRUE LIMIT 20`,
  );
  const { tasks = 0, asleep = 0, latest } = counts[0] ?? {};
  return {
    summary: `${tasks} tasks woke tables, ${asleep} of which had no session; at most ${latest} after their plan`,
    wrong: [...wrong.map(({ row }) => row), ...(tasks > 0 && asleep === 0 ? ["no table ever fell asleep"] : [])],
  };
}
