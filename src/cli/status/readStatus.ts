import { disconnect } from "../../shared/postgres/client.js";
import { toReport, type ErrorReport } from "../../shared/errors.js";
import type { Configuration, Entry } from "../../shared/config/types.js";
import { readBacklog, type Backlog } from "../../tasks/queries/backlog.js";
import { readPauses, type Pause } from "../../tasks/commands/pauses.js";
import {
  readCluster,
  readConnections,
  readManager,
  readOtherLeaders,
  type OtherLeader,
  type Process,
} from "../../tasks/queries/clusterProcesses.js";
import { readRates, type Rates } from "../../tasks/queries/rates.js";
import { readRowCounts, type RowCounts } from "../../tasks/queries/rowCounts.js";
import { readSessions, type ExecutorSessions } from "../../tasks/queries/executorSessions.js";
import { connectFor, onEntry, type OpenTable } from "../support/openTable.js";

/** Rows that rates are counted in. */
const newestRows = 100_000;
/** Entries are asked so many at a time: a connection each. */
const entriesAtOnce = 5;

export interface ClusterStatus {
  readonly leader: Process | null;
  readonly standbys: readonly Process[];
  /** Those of other clusters on the server; looked for where this one has no leader. */
  readonly otherLeaders: readonly OtherLeader[];
  readonly connections: { readonly most: number; readonly taken: number };
}

export interface TableStatus {
  readonly database: string;
  readonly schema: string;
  readonly table: string;
  readonly error: ErrorReport | null;
  readonly manager: Process | null;
  readonly sessions: Pick<ExecutorSessions, "sessions" | "running"> | null;
  readonly backlog: Backlog | null;
  readonly rates: Rates | null;
  readonly counts: RowCounts | null;
  readonly pauses: readonly Pause[];
}

export interface Status {
  /** Of the cluster, as `pg_conf.name` has it. */
  readonly name: string;
  readonly cluster: ClusterStatus | null;
  readonly error: ErrorReport | null;
  readonly tables: readonly TableStatus[];
}

/** Everything there is to know; what cannot be asked has its error instead. */
export async function readStatus(
  configuration: Configuration,
  entries: readonly Entry[],
): Promise<Status> {
  const name = configuration.parameters["pg_conf.name"];
  let cluster: ClusterStatus | null = null;
  let error: ErrorReport | null = null;
  try {
    cluster = await readClusterStatus(configuration, name);
  } catch (failure) {
    error = toReport(failure);
  }
  const tables: TableStatus[] = [];
  for (let from = 0; from < entries.length; from += entriesAtOnce) {
    const batch = entries.slice(from, from + entriesAtOnce);
    tables.push(
      ...(await Promise.all(batch.map((entry) => readTableStatus(configuration, entry)))),
    );
  }
  return { name, cluster, error, tables };
}

async function readClusterStatus({ control }: Configuration, name: string): Promise<ClusterStatus> {
  const client = await connectFor(control, "status");
  try {
    const cluster = await readCluster(client, name);
    const otherLeaders = cluster.leader === null ? await readOtherLeaders(client, name) : [];
    return { ...cluster, otherLeaders, connections: await readConnections(client) };
  } finally {
    await disconnect(client);
  }
}

async function readTableStatus(configuration: Configuration, entry: Entry): Promise<TableStatus> {
  try {
    return await onEntry(configuration, entry, "status", (opened) => askTable(opened, newestRows));
  } catch (failure) {
    return {
      ...namesOf(entry),
      error: toReport(failure),
      manager: null,
      sessions: null,
      backlog: null,
      rates: null,
      counts: null,
      pauses: [],
    };
  }
}

const namesOf = ({
  target,
  schema,
  table,
}: Entry): Pick<TableStatus, "database" | "schema" | "table"> => ({
  database: target.database,
  schema,
  table,
});

/** @param newest rows that rates are counted in, at most */
export async function askTable(
  { client, table, entry }: OpenTable,
  newest: number,
): Promise<TableStatus> {
  const manager = await readManager(client, table);
  const { sessions, running } = await readSessions(client, table);
  return {
    ...namesOf(entry),
    error: null,
    manager,
    sessions: { sessions, running },
    backlog: await readBacklog(client, table),
    rates: await readRates(client, table, newest),
    counts: await readRowCounts(client, table),
    pauses: await readPauses(client, table),
  };
}
