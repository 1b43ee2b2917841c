import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";
import { numbers } from "./randomTasks.js";
import { eventually } from "./tasks.js";

const groups = 3;

const quoted = (sql: string): string => `'${sql.replaceAll("'", "''")}'`;

const lock = (key: number, isAlone: boolean): string =>
  `pg_try_advisory_xact_lock${isAlone ? "" : "_shared"}(44, ${key})`;

/**
 * SQL that fails if another run is beside it that may not be. Each takes the lock of the table, 0, and that of its group,
 * shared or alone, until its transaction has ended.
 */
function input(group: number, alone: string | null, ms: number, then = ""): string {
  return `DO $$ BEGIN
    IF NOT ${lock(0, alone === "table")} OR NOT ${lock(group, alone === "group")} THEN RAISE 'beside another'; END IF;
    PERFORM pg_sleep(${ms / 1000}); ${then}
  END $$`;
}

const fails = "RAISE 'intended' USING ERRCODE = '22012';";
const failsOnce = `IF (SELECT attempt IS NULL FROM task WHERE id = current_setting('pg_task.id')::bigint) THEN ${fails} END IF;`;

/** Inserts random tasks, of which some run alone, some in chains, some fail, and some are tried again. */
export async function insertTurnTasks(client: Client, seed: number, count: number): Promise<void> {
  const next = numbers(seed);
  for (let each = 0; each < count; each += 1) {
    const kind = next(10);
    const group = 1 + next(groups);
    const ms = next(3) === 0 ? next(40) : 1;
    const max = next(4);
    const later = `clock_timestamp() + interval '${next(2) === 0 ? 0 : next(300)} ms'`;
    const alone = next(3) === 0 ? "table" : "group";
    if (kind < 6) {
      await client.query(`INSERT INTO task ("group", max, plan, input) VALUES ('g${group}', ${max}, ${later}, $1)`, [
        input(group, null, ms),
      ]);
    } else if (kind < 8) {
      await client.query(
        `INSERT INTO task ("group", max, plan, input, alone, retry, backoff, sqlstate)
         VALUES ('g${group}', ${max}, ${later}, $1, '${alone}', 1, '20 ms', '{22012}')`,
        [input(group, alone, ms, next(3) === 0 ? failsOnce : "")],
      );
    } else {
      const failing = next(3) === 0 ? next(3) : -1;
      const steps = [0, 1, 2].map((step) => ({
        input: input(group, alone, ms, step === failing ? fails : ""),
        retry: 0,
        ...(step === 0 ? { alone } : {}),
      }));
      const cleanUp = next(2) === 0 ? `, fail => ${quoted(input(group, alone, ms))}` : "";
      await client.query(`SELECT task_chain($1::jsonb, "group" => 'g${group}'${cleanUp})`, [JSON.stringify(steps)]);
    }
    if (next(3) === 0) await pause(next(30));
  }
}

/** Waits until all tasks have ended, and checks that nothing was beside a chain that ran alone. */
export async function assertTurns(client: Client): Promise<void> {
  await eventually(client, "SELECT FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK') HAVING count(*) = 0");
  await eventually(client, "SELECT FROM task_turn HAVING count(*) = 0");
  const { rows: wrong } = await client.query(
    "SELECT id, state, error FROM task WHERE state = 'FAIL' AND error NOT LIKE '%intended%' OR state NOT IN ('DONE', 'FAIL', 'GONE')",
  );
  assert.deepEqual(wrong, []);
  const { rows: beside } = await client.query(
    `WITH run AS (
       SELECT id, "group", alone, CASE WHEN alone IS NOT NULL THEN coalesce(turn, id) END AS chain, start, stop FROM task WHERE state <> 'GONE'
     ), chain AS (
       SELECT chain, min(alone) AS alone, min("group") AS "group", min(start) AS start, max(stop) AS stop FROM run WHERE chain IS NOT NULL GROUP BY chain
     )
     SELECT c.chain, r.id FROM chain AS c JOIN run AS r ON r.chain IS DISTINCT FROM c.chain AND (c.alone = 'table' OR r."group" = c."group")
     WHERE r.start < c.stop AND r.stop > c.start`,
  );
  assert.deepEqual(beside, []);
}
