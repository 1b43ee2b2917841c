import { setTimeout as sleep } from "node:timers/promises";
import { groupHeads, startBlockers } from "../../src/manager/schema/startRule.sql.js";
import { taskTable } from "../../src/manager/schema/taskTable.js";
import type { Client } from "../../src/shared/postgres/client.js";
import type { Locked } from "./disturbances.js";

/** How long a due task that may start can stay unclaimed, in ms. */
const stallMs = 5_000;
const sampleMs = 250;
/** Minimum number of samples in that time. If there were fewer, the machine itself was stalled. */
const minSamples = 10;

/** The first due task of a group that may start, among those whose rows the soak test has not locked. */
interface Head {
  readonly id: string;
  readonly group: string;
  readonly max: number;
}

interface Sample {
  readonly heads: readonly Head[];
  /** Pids of sessions that own tasks, according to the rows. */
  readonly owners: readonly number[];
  /** Sessions that are not idle, according to the server. */
  readonly active: readonly { readonly pid: number; readonly name: string }[];
  /** Number of sessions that have been idle for a second. */
  readonly idle: number;
  /** Time of the last claim. */
  readonly taken: string | null;
}

/** Limits on how many tasks run at the same time. */
export interface Limits {
  readonly sessions: number;
  /** `pg_task.run`, which changes during the test. */
  run: number;
}

/** A task that should have been claimed. */
export interface Stall extends Head {
  readonly forMs: number;
}

/**
 * Watches for a due task that nothing keeps from starting but that is not claimed for too long. Relies only on the rows
 * and on what the server reports about sessions.
 */
export class StallDetector {
  readonly #seen = new Map<string, { id: string; since: number; times: number }>();
  readonly #limits: Limits;
  readonly #locked: Locked;
  #taken: string | null = null;
  /** The longest wait so far, in ms. */
  maxWaitMs = 0;

  constructor(limits: Limits, locked: Locked) {
    this.#limits = limits;
    this.#locked = locked;
  }

  /** Starts to measure all waits anew. Called after a change of the limits. */
  reset(): void {
    this.#seen.clear();
  }

  /** Resolves with a stalled task, or with null when `signal` is aborted. */
  async until(client: Client, signal: AbortSignal): Promise<Stall | null> {
    while (!signal.aborted) {
      const stall = this.#judge(await takeSample(client, this.#locked));
      if (stall !== null) return stall;
      await sleep(sampleMs);
    }
    return null;
  }

  #judge({ heads, owners, active, idle, taken }: Sample): Stall | null {
    const now = performance.now();
    const busy = new Set([...owners, ...active.map(({ pid }) => pid)]).size;
    // As long as other tasks are being claimed, they may come before this one.
    const noneClaimed = taken === this.#taken;
    this.#taken = taken;
    const free = busy < Math.min(this.#limits.sessions, this.#limits.run) && (idle > 0 || noneClaimed);
    const waits = new Set<string>();
    for (const head of heads) {
      const name = `pg_task public task ${head.group}`;
      const allowed = active.filter((each) => each.name === name).length <= Math.max(head.max, 0);
      if (!free || !allowed) continue;
      waits.add(head.group);
      const before = this.#seen.get(head.group);
      if (before?.id !== head.id) {
        this.#seen.set(head.group, { id: head.id, since: now, times: 1 });
        continue;
      }
      before.times += 1;
      const forMs = now - before.since;
      this.maxWaitMs = Math.max(this.maxWaitMs, forMs);
      if (forMs > stallMs && before.times >= minSamples) return { ...head, forMs };
    }
    for (const group of this.#seen.keys()) if (!waits.has(group)) this.#seen.delete(group);
    return null;
  }
}

const table = taskTable("public", "task");
/** The load uses no keys and no gaps. */
const circumstances = { running: "o.sessions", keyRuns: "NULL", quietMs: "NULL" };

/** Reads the rows before the sessions. In the meantime, sessions can only become active, so no session is missed. */
async function takeSample(client: Client, locked: Locked): Promise<Sample> {
  const { rows: heads } = await client.query<Head>(
    `WITH ${groupHeads(table, { columns: "d.*", after: "-2147483649", except: "$1" })}, owned AS MATERIALIZED (
       SELECT hash, count(DISTINCT owner)::integer AS sessions FROM task WHERE owner IS NOT NULL GROUP BY hash
     )
     SELECT t.id, t."group", t.max FROM head AS t LEFT JOIN owned AS o USING (hash)
     WHERE cardinality(${startBlockers(table, circumstances)}) = 0`,
    [[...locked]],
  );
  const { rows: owners } = await client.query<{ pid: number }>(
    `SELECT DISTINCT split_part(owner, ' ', 1)::integer AS pid FROM task WHERE owner IS NOT NULL`,
  );
  const { rows: active } = await client.query<{ pid: number; name: string }>(
    `SELECT pid, application_name AS name FROM pg_stat_activity
     WHERE application_name LIKE 'pg\\_task %' AND state IS DISTINCT FROM 'idle'`,
  );
  const { rows } = await client.query<{ idle: number; taken: string | null }>(
    `SELECT (SELECT count(*)::integer FROM pg_stat_activity WHERE application_name LIKE 'pg\\_task %'
         AND state = 'idle' AND state_change < now() - interval '1 second') AS idle,
       (SELECT max(take)::text FROM task) AS taken`,
  );
  const { idle = 0, taken = null } = rows[0] ?? {};
  return { heads, owners: owners.map(({ pid }) => pid), active, idle, taken };
}

/** Describes the state of the table and of the server, for diagnosing a failure. */
export async function describe(client: Client): Promise<string> {
  const { rows: states } = await client.query(
    `SELECT state::text, ready, owner IS NOT NULL AS owned, count(*)::integer FROM task GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`,
  );
  const { rows: groups } = await client.query(
    `SELECT "group", state::text, max, count(*)::integer, min(id) AS first, array_agg(DISTINCT owner) AS owners FROM task
     WHERE state IN ('PLAN', 'TAKE', 'WORK') OR owner IS NOT NULL GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT 60`,
  );
  const { rows: activity } = await client.query(
    `SELECT pid, application_name AS name, state, wait_event_type AS waits, wait_event AS for,
       now() - xact_start AS open, now() - state_change AS since, left(query, 60) AS query
     FROM pg_stat_activity WHERE backend_type = 'client backend' ORDER BY application_name`,
  );
  const { rows: paused } = await client.query("SELECT * FROM task_pause");
  return `states\n${lines(states)}\ngroups\n${lines(groups)}\nactivity\n${lines(activity)}\npaused\n${lines(paused)}`;
}

const lines = (rows: readonly object[]): string => rows.map((row) => `  ${JSON.stringify(row)}`).join("\n");
