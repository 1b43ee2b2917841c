import { PgTaskError } from "../../shared/errors.js";
import type { Entry } from "../../shared/config/types.js";
import type { Rest, SettledTable, SleepingTable } from "../../shared/ipc/sleepingTable.js";
import { longestTimerMs } from "../../shared/backoff.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { disconnect, isServerError, type Client } from "../../shared/postgres/client.js";
import { literal } from "../../shared/postgres/quoting.js";
import { clockStepMs, minThreadSleepMs, zoneCheckIntervalMs } from "../model/tuning.js";
import { rollCallChannel } from "../recovery/otherManagers.js";
import { readFingerprints } from "../schema/fingerprint.sql.js";
import { findDifference, readHomes, readPlace } from "../schema/home.js";
import { locateTable } from "../schema/locateTable.js";
import { hasSchedule } from "../schema/schedulesView.sql.js";
import { taskTable, type TaskTable } from "../schema/taskTable.js";
import { isComputed, replannedSql } from "../upkeep/zoneChanges.sql.js";
import { readWrittenTables } from "./writers.sql.js";
import { connectManager, readIdentity } from "./connectManager.js";
import { sleepCheckSql } from "./deepSleep.js";

/** Larger tables are not read for the examination: their managers read them, one after another. */
const maxBytes = 16 * 2 ** 20;

/** What a row with a rule may take is limited by `statement_timeout`. Nothing waits for a table that somebody has locked. */
const settings = `SET lock_timeout = '100ms'; SET statement_timeout = '10s';
SET enable_seqscan = on; SET enable_hashjoin = on; SET enable_bitmapscan = on; SET plan_cache_mode = auto`;

interface Candidate extends Pick<SettledTable, "oid" | "stateType"> {
  readonly entry: Entry;
  readonly table: TaskTable;
}

/**
 * Finds out, on one connection, which tables of a server, database and user can sleep without a manager having served
 * them since the start: they are in order, at home here, and no manager would have anything to do. Whatever is unusual
 * is left to the table's manager.
 *
 *   find ──▶ tables in order ──the supervisor listens and takes their locks──▶ check ──▶ tables with nothing to do
 */
export class Examination {
  readonly #client: Client;
  readonly #entries: readonly Entry[];
  #candidates: readonly (Candidate | null)[] = [];

  private constructor(client: Client, entries: readonly Entry[]) {
    this.#client = client;
    this.#entries = entries;
  }

  /** @param entries at least one, all with the same target */
  static async open(entries: readonly Entry[]): Promise<Examination> {
    const [first] = entries;
    if (first === undefined) throw new PgTaskError("INTERNAL", "no table to examine");
    const client = await connectManager(first, undefined, applicationNames.sleepWatch);
    await client.query(settings);
    return new Examination(client, entries);
  }

  async close(): Promise<void> {
    await disconnect(this.#client);
  }

  /** Returns what to watch of each table that is in order, and null for the others. */
  async find(): Promise<(SleepingTable | null)[]> {
    const subjects = await Promise.all(
      this.#entries.map(async (entry) => {
        const { schema, table } = await locateTable(this.#client, entry, () => {});
        return { entry, table: taskTable(schema, table) };
      }),
    );
    const found = await readFingerprints(this.#client, subjects);
    this.#candidates = subjects.map(({ entry, table }, place) => {
      const { oid, stateType, isInOrder } = found[place] ?? { oid: 0, stateType: null, isInOrder: false };
      const isElsewhere = table.schema !== entry.schema || table.table !== entry.table;
      return isInOrder && !isElsewhere ? { entry, table, oid, stateType } : null;
    });
    return this.#candidates.map((candidate, place) => {
      if (candidate === null) return null;
      const { oid, table } = candidate;
      const { channels = [] } = found[place] ?? {};
      return { oid, channels, rollCall: rollCallChannel(oid), checkSql: sleepCheckSql(table), wakeMs: Infinity };
    });
  }

  /**
   * Returns for how long each table has nothing to do, and null for those that need a manager.
   * Called when the supervisor listens for these tables and has their locks: what was written before is seen, and what
   * is written later wakes the table. Transactions that may have been told not to notify are under way now.
   */
  async check(places: readonly number[]): Promise<(Rest | null)[]> {
    const candidates = places.map((place) => this.#candidates[place] ?? null);
    const first = candidates.find((candidate) => candidate !== null);
    if (first === undefined || first === null) return candidates.map(() => null);
    const written = await readWrittenTables(this.#client);
    const here = await readPlace(this.#client, first.table);
    const { serverStart } = await readIdentity(this.#client);
    return await Promise.all(
      candidates.map(async (candidate) => {
        if (candidate === null || written.has(candidate.oid)) return null;
        const { entry, oid, stateType, table } = candidate;
        try {
          const [wakeMs, homes] = await Promise.all([readWakeMs(this.#client, table), readHomes(this.#client, table)]);
          const isAtHome = homes.length > 0 && findDifference(homes, { ...here, table: String(oid) }, entry) === null;
          if (!isAtHome || wakeMs === null || wakeMs < minThreadSleepMs) return null;
          const settled = { oid, stateType, serverStart, wasServed: false };
          const memory = { quietMs: 0, zoneCheckMs: zoneCheckIntervalMs, settled };
          return { wakeMs: Math.min(wakeMs, longestTimerMs), memory };
        } catch (error) {
          // The table is locked, or its manager will say what is wrong with it.
          if (isServerError(error)) return null;
          throw error;
        }
      }),
    );
  }
}

/** Null if there is something to do now. */
async function readWakeMs(client: Client, table: TaskTable): Promise<number | null> {
  const { rows } = await client.query<{ busy: boolean; ms: number | null }>(restSql(table));
  const [found] = rows;
  return found === undefined || found.busy ? null : Math.min(found.ms ?? Infinity, zoneCheckIntervalMs);
}

/**
 * Everything for which a manager that starts looks: tasks that are due, claimed, or wait for others, rows to be pruned,
 * schedules that were planned by another clock or with other time zone data, a sequence that is behind, successors and
 * dependencies that are owed, ends that webhooks are to be told, turns, and proofs in the ledger that is to be emptied first.
 */
function restSql(table: TaskTable): string {
  const { qualified, qualifiedDependencies, qualifiedLedger2, qualifiedOutbox, qualifiedOwed, schema, turns } = table;
  const isAhead = `${hasSchedule("t")} AND t.ready IS NOT NULL AND greatest(t.created, t.stop) > now() + interval '1 ms' * ${clockStepMs}`;
  const isReplanned = `CASE WHEN NOT t.ready AND ${isComputed} THEN ${replannedSql(schema)} IS NOT NULL ELSE false END`;
  const pruneAt =
    "CASE WHEN t.keep > interval '0' AND t.keep < interval '1000 years' AND t.owner IS NULL AND t.ready IS NULL THEN t.stop + t.keep END";
  const size = `(SELECT pg_relation_size(${literal(qualified)}::regclass))`;
  return `
SELECT coalesce(r.busy, false) OR ${size} > ${maxBytes} OR coalesce(r.prune_at <= now(), false)
    OR coalesce(r.id > coalesce(pg_sequence_last_value(pg_get_serial_sequence(${literal(qualified)}, 'id')::regclass), 0), false)
    OR EXISTS (SELECT FROM ${qualifiedDependencies}) OR EXISTS (SELECT FROM ${qualifiedOwed})
    OR EXISTS (SELECT FROM ${qualifiedLedger2}) OR EXISTS (SELECT FROM ${qualifiedOutbox})
    OR EXISTS (SELECT FROM ${turns}) AS busy,
  (extract(epoch FROM least(r.plan, r.prune_at) - clock_timestamp()) * 1000)::float8 AS ms
FROM (
  SELECT bool_or(t.ready IS TRUE OR t.owner IS NOT NULL OR t.ready IS NOT NULL AND t.wait IS NOT NULL OR ${isAhead} OR ${isReplanned}) AS busy,
    max(t.id) AS id, min(t.plan) FILTER (WHERE NOT t.ready AND isfinite(t.plan)) AS plan, min(${pruneAt}) AS prune_at
  FROM ${qualified} AS t WHERE ${size} <= ${maxBytes}
) AS r`;
}
