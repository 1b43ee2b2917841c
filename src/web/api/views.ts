import type { ClusterView, ManagerView } from "../../shared/clusterStatus.js";
import { toReport } from "../../shared/errors.js";
import { WebProblem } from "../errors.js";
import type { Health, Manager, Table } from "./schemas.js";
import type { WebTable } from "../data/webTable.js";

/** How the process and its managers are; asks nobody. */
export function healthView(
  cluster: ClusterView,
  tables: readonly WebTable[],
  version: string,
): Health {
  return {
    status: cluster.ready ? "ready" : "not ready",
    role: cluster.role,
    since: cluster.since.toISOString(),
    pid: process.pid,
    version,
    managers: tables.map(({ names, key }) => ({
      ...names,
      manager: managerView(cluster.manager(key)),
    })),
  };
}

export function managerView(view: ManagerView | null): Manager | null {
  if (view === null) return null;
  const { state, since, reason, stalled, running, sessions } = view;
  return { state, since: since.toISOString(), reason, stalled, running, sessions };
}

/** A table with what its server says of it, or why that cannot be had. */
export async function tableView(cluster: ClusterView, table: WebTable): Promise<Table> {
  const base = {
    id: table.id,
    ...table.names,
    manager: managerView(cluster.manager(table.key)),
  };
  try {
    return { ...base, summary: await table.summary(), error: null };
  } catch (error) {
    const message = error instanceof WebProblem ? error.message : toReport(error).message;
    return { ...base, summary: null, error: message };
  }
}
