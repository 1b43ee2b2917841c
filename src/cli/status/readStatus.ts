import { disconnect } from "../../shared/postgres/client.js";
import { toReport, type ErrorReport } from "../../shared/errors.js";
import type { Configuration, Entry } from "../../shared/config/types.js";
import { readBacklog, type Backlog } from "../../tasks/queries/backlog.js";
import { readPauses, type Pause } from "../../tasks/commands/pauses.js";
import { readCopy } from "../../tasks/queries/copy.js";
import { readPausedSchedules, type PausedSchedules } from "../../tasks/queries/pausedSchedules.js";
import {
  readCluster,
  readConnections,
  readTableLock,
  readOtherLeaders,
  type ForeignHolder,
  type OtherLeader,
  type ServerProcess,
} from "../../tasks/queries/clusterProcesses.js";
import { readRates, type Rates } from "../../tasks/queries/recentRuns.js";
import { readRowCounts, type RowCounts } from "../../tasks/queries/rowCounts.js";
import { readSessions, type ExecutorSessions } from "../../tasks/queries/executorSessions.js";
import { readSessionRefusal, type SessionRefusal } from "../../tasks/queries/sessionRefusal.js";
import { describeOtherEntries, readPublishedEntries } from "../../supervisor/publishedEntries.js";
import { connectForCommand, withEntry, type OpenTable } from "../support/openTable.js";

/** Rates are calculated from at most this many of the newest rows. */
const maxRateRows = 100_000;
/** Number of entries that are queried at a time, each on its own connection. */
const concurrentEntries = 5;

interface Standby extends ServerProcess {
  /** In which entries it differs from the leader. Null if in none, or if either has not published its entries. */
  readonly otherEntries: string | null;
}

interface ClusterStatus {
  readonly leader: ServerProcess | null;
  /** Who else holds the leader's lock. */
  readonly foreignHolder: ForeignHolder | null;
  readonly standbys: readonly Standby[];
  /** Leaders of other clusters on the server. They are read only if this cluster has no leader. */
  readonly otherLeaders: readonly OtherLeader[];
  readonly connections: { readonly most: number; readonly taken: number };
}

export interface TableStatus {
  readonly database: string;
  readonly schema: string;
  readonly table: string;
  readonly error: ErrorReport | null;
  /** Why the table is a copy, in which nothing starts. Null if it is none. */
  readonly copy: string | null;
  readonly manager: ServerProcess | null;
  /** Who else holds the manager's lock. */
  readonly foreignHolder: ForeignHolder | null;
  readonly sessions: Pick<ExecutorSessions, "sessions" | "running"> | null;
  /** Why tasks wait for sessions that the server refuses. Null if it refuses none, or no task waits. */
  readonly sessionsRefused: SessionRefusal | null;
  readonly backlog: Backlog | null;
  readonly rates: Rates | null;
  readonly counts: RowCounts | null;
  readonly pauses: readonly Pause[];
  /** Null if they could not be read. */
  readonly pausedSchedules: PausedSchedules | null;
}

export interface Status {
  /** The cluster's name, which is the value of `pg_conf.name`. */
  readonly name: string;
  readonly cluster: ClusterStatus | null;
  readonly error: ErrorReport | null;
  readonly tables: readonly TableStatus[];
}

/** Reads the status of the cluster and of each entry. If one of them cannot be read, its error takes its place. */
export async function readStatus(configuration: Configuration, entries: readonly Entry[]): Promise<Status> {
  const name = configuration.parameters["pg_conf.name"];
  let cluster: ClusterStatus | null = null;
  let error: ErrorReport | null = null;
  try {
    cluster = await readClusterStatus(configuration, name);
  } catch (failure) {
    error = toReport(failure);
  }
  const tables: TableStatus[] = [];
  for (let from = 0; from < entries.length; from += concurrentEntries) {
    const batch = entries.slice(from, from + concurrentEntries);
    tables.push(...(await Promise.all(batch.map((entry) => readEntryStatus(configuration, entry)))));
  }
  return { name, cluster, error, tables };
}

async function readClusterStatus({ control, entries }: Configuration, name: string): Promise<ClusterStatus> {
  const client = await connectForCommand(control, "status", { isControl: true });
  try {
    const cluster = await readCluster(client, name);
    const otherLeaders = cluster.leader === null ? await readOtherLeaders(client, name) : [];
    const { leader, all } = await readPublishedEntries(client, name);
    const otherEntries = (pid: number): string | null =>
      leader && describeOtherEntries(all.get(pid) ?? leader, leader, { entries, who: "it" });
    const standbys = cluster.standbys.map((standby) => ({ ...standby, otherEntries: otherEntries(standby.pid) }));
    return { ...cluster, standbys, otherLeaders, connections: await readConnections(client) };
  } finally {
    await disconnect(client);
  }
}

async function readEntryStatus(configuration: Configuration, entry: Entry): Promise<TableStatus> {
  try {
    return await withEntry(configuration, entry, "status", (opened) => queryTableStatus(opened, maxRateRows));
  } catch (failure) {
    return {
      ...namesOf(entry),
      error: toReport(failure),
      copy: null,
      manager: null,
      foreignHolder: null,
      sessions: null,
      sessionsRefused: null,
      backlog: null,
      rates: null,
      counts: null,
      pauses: [],
      pausedSchedules: null,
    };
  }
}

const namesOf = ({ target, schema, table }: Entry): Pick<TableStatus, "database" | "schema" | "table"> => ({
  database: target.database,
  schema,
  table,
});

/**
 * Reads the status of a table.
 *
 * @param maxRows the rates are calculated from at most this many of the newest rows
 */
export async function queryTableStatus({ client, table, entry }: OpenTable, maxRows: number): Promise<TableStatus> {
  const { manager, foreignHolder } = await readTableLock(client, table);
  const { sessions, running } = await readSessions(client, table);
  const backlog = await readBacklog(client, table);
  return {
    ...namesOf(entry),
    error: null,
    copy: await readCopy(client, table, entry),
    manager,
    foreignHolder,
    sessions: { sessions, running },
    // The manager shows a refusal until a session can be opened, also if the tasks that waited have been deleted.
    sessionsRefused: backlog.due.value > 0 ? await readSessionRefusal(client, table) : null,
    backlog,
    rates: await readRates(client, table, maxRows),
    counts: await readRowCounts(client, table, backlog),
    pauses: await readPauses(client, table),
    pausedSchedules: await readPausedSchedules(client, table),
  };
}
