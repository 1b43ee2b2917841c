import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";
import type { Locked } from "./meddling.js";

/** A due, allowed row has to be taken within this, in ms. */
const longestMs = 5_000;
const everyMs = 250;
/** One that was seen less often tells of a machine that stood still. */
const leastSeen = 10;

/** The first due task of a group that nobody has locked. */
interface Head {
  readonly id: string;
  readonly group: string;
  readonly max: number;
  /** Sessions that rows say to have tasks of its group. */
  readonly running: number;
}

interface Sample {
  readonly heads: readonly Head[];
  /** Pids of sessions that rows say to have something. */
  readonly owners: readonly number[];
  /** Those that the server says to be at something. */
  readonly active: readonly { readonly pid: number; readonly name: string }[];
  /** How many have had nothing to do for a second. */
  readonly idle: number;
  /** When the last task was taken. */
  readonly taken: string | null;
}

/** How much may run at once. */
export interface Limits {
  readonly sessions: number;
  /** `pg_task.run`, which changes while it runs. */
  run: number;
}

/** A task that should have been taken. */
export interface Stall extends Head {
  readonly forMs: number;
}

/**
 * Looks again and again for a due task that nothing keeps from starting, by what the rows and the server say
 * alone, until one has not been taken for too long.
 */
export class Watch {
  readonly #seen = new Map<string, { id: string; since: number; times: number }>();
  readonly #limits: Limits;
  readonly #locked: Locked;
  #taken: string | null = null;
  /** How long the one that waited longest has waited, in ms. */
  longestMs = 0;

  constructor(limits: Limits, locked: Locked) {
    this.#limits = limits;
    this.#locked = locked;
  }

  /** What may start at once may have changed: waiting counts from now. */
  forget(): void {
    this.#seen.clear();
  }

  /** Resolves with a task that was not taken, null when told to end. */
  async until(client: Client, signal: AbortSignal): Promise<Stall | null> {
    while (!signal.aborted) {
      const stall = this.#judge(await sample(client, this.#locked));
      if (stall !== null) return stall;
      await sleep(everyMs);
    }
    return null;
  }

  #judge({ heads, owners, active, idle, taken }: Sample): Stall | null {
    const now = performance.now();
    const busy = new Set([...owners, ...active.map(({ pid }) => pid)]).size;
    // As long as others are taken one after the other, those may come first.
    const stands = taken === this.#taken;
    this.#taken = taken;
    const free = busy < Math.min(this.#limits.sessions, this.#limits.run) && (idle > 0 || stands);
    const waits = new Set<string>();
    for (const head of heads) {
      const name = `pg_task public task ${head.group}`;
      const byName = active.filter((each) => each.name === name).length;
      const allowed = Math.max(head.running, byName) <= Math.max(head.max, 0);
      if (!free || !allowed) continue;
      waits.add(head.group);
      const before = this.#seen.get(head.group);
      if (before?.id !== head.id) {
        this.#seen.set(head.group, { id: head.id, since: now, times: 1 });
        continue;
      }
      before.times += 1;
      const forMs = now - before.since;
      this.longestMs = Math.max(this.longestMs, forMs);
      if (forMs > longestMs && before.times >= leastSeen) return { ...head, forMs };
    }
    for (const group of this.#seen.keys()) if (!waits.has(group)) this.#seen.delete(group);
    return null;
  }
}

/** Rows first: what the server says later of who is at work can only be more. */
async function sample(client: Client, locked: Locked): Promise<Sample> {
  const { rows: heads } = await client.query<Head>(
    `WITH held AS MATERIALIZED (
       SELECT hash, count(DISTINCT owner)::integer AS sessions FROM task WHERE owner IS NOT NULL GROUP BY hash
     ), head AS MATERIALIZED (
       SELECT DISTINCT ON (hash) id, hash, "group", max FROM task AS t
       WHERE ready AND plan <= now() AND id <> ALL ($1::bigint[])
         AND NOT EXISTS (SELECT FROM task_pause AS p WHERE p."group" IS NULL OR p."group" = t."group")
       ORDER BY hash, greatest(max, 0) DESC, id
     )
     SELECT id, "group", max, coalesce(sessions, 0) AS running FROM head LEFT JOIN held USING (hash)`,
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

/** What the table and the server say, for whoever has to find out why. */
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

const lines = (rows: readonly object[]): string =>
  rows.map((row) => `  ${JSON.stringify(row)}`).join("\n");
