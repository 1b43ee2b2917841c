import type { ClusterView, ManagerView } from "../../shared/clusterStatus.js";
import { toReport } from "../../shared/errors.js";
import { ApiError } from "../errors.js";
import type { Health, ManagerInfo, TableInfo } from "./schemas.js";
import type { WebTable } from "../data/webTable.js";

/** Returns the health of this process and its managers. Makes no query. */
export function healthOf(cluster: ClusterView, tables: readonly WebTable[], version: string): Health {
  return {
    status: cluster.ready ? "ready" : "not ready",
    role: cluster.role,
    since: cluster.since.toISOString(),
    pid: process.pid,
    version,
    managers: tables.map(({ names, key }) => ({
      ...names,
      manager: managerInfo(cluster.manager(key)),
    })),
  };
}

function managerInfo(view: ManagerView | null): ManagerInfo | null {
  if (view === null) return null;
  const { state, since, reason, stalled, running, sessions } = view;
  return { state, since: since.toISOString(), reason, stalled, running, sessions };
}

/** Reads a table and its summary. If the server did not deliver a summary, returns the reason instead. */
export async function readTableInfo(cluster: ClusterView, table: WebTable): Promise<TableInfo> {
  const base = {
    id: table.id,
    ...table.names,
    manager: managerInfo(cluster.manager(table.key)),
  };
  try {
    return { ...base, summary: await table.summary(), error: null };
  } catch (error) {
    const message = error instanceof ApiError ? error.message : toReport(error).message;
    return { ...base, summary: null, error: message };
  }
}
