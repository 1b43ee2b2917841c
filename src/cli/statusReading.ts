import { disconnect } from "../shared/database.js";
import { toReport, type ErrorReport } from "../shared/errors.js";
import type { Configuration, Entry } from "../shared/config/types.js";
import { readBacklog, readRecent, type Backlog, type Recent } from "../tasks/backlog.js";
import { readPauses, type Pause } from "../tasks/pauses.js";
import {
  countSessions,
  readCluster,
  readConnections,
  readManager,
  type Process,
} from "../tasks/processes.js";
import { connectFor, onEntry } from "./openTable.js";

/** Rows that rates and states are counted in. */
export const newestRows = 100_000;
/** Entries are asked so many at a time: a connection each. */
const entriesAtOnce = 5;

export interface ClusterStatus {
  readonly leader: Process | null;
  readonly standbys: readonly Process[];
  readonly connections: { readonly most: number; readonly taken: number };
}

export interface TableStatus {
  readonly database: string;
  readonly schema: string;
  readonly table: string;
  readonly error: ErrorReport | null;
  readonly manager: Process | null;
  readonly sessions: { readonly sessions: number; readonly active: number | null } | null;
  readonly backlog: Backlog | null;
  readonly recent: Recent | null;
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
    return { ...(await readCluster(client, name)), connections: await readConnections(client) };
  } finally {
    await disconnect(client);
  }
}

async function readTableStatus(configuration: Configuration, entry: Entry): Promise<TableStatus> {
  const names = { database: entry.target.database, schema: entry.schema, table: entry.table };
  try {
    return await onEntry(configuration, entry, "status", async ({ client, table }) => ({
      ...names,
      error: null,
      manager: await readManager(client, table),
      sessions: await countSessions(client, table),
      backlog: await readBacklog(client, table),
      recent: await readRecent(client, table, newestRows),
      pauses: await readPauses(client, table),
    }));
  } catch (failure) {
    return {
      ...names,
      error: toReport(failure),
      manager: null,
      sessions: null,
      backlog: null,
      recent: null,
      pauses: [],
    };
  }
}
