import type { ClusterView, ManagerView } from "../../shared/clusterStatus.js";
import { toReport } from "../../shared/errors.js";
import { ApiError } from "../errors.js";
import type { Health, ManagerInfo, TableInfo } from "./schemas.js";
import type { WebTable } from "../data/webTable.js";

/**
 * Returns the health of this process and its managers. Makes no query.
 *
 * @param isTrusted whether the reader may see why managers wait. A reason can contain names of roles and columns.
 */
export function healthOf(
  cluster: ClusterView,
  tables: readonly WebTable[],
  { version, isTrusted }: { readonly version: string; readonly isTrusted: boolean },
): Health {
  return {
    status: healthStatus(cluster),
    role: cluster.role,
    since: cluster.since.toISOString(),
    pid: process.pid,
    version,
    managers: tables.map(({ names, key }) => ({
      ...names,
      manager: hideReason(managerInfo(cluster.manager(key)), isTrusted),
    })),
  };
}

export const healthStatus = ({ ready }: ClusterView): Health["status"] => (ready ? "ready" : "not ready");

const hideReason = (info: ManagerInfo | null, isTrusted: boolean): ManagerInfo | null =>
  info === null || isTrusted ? info : { ...info, reason: null };

/** Whether this process does what it is there for: it stands by, or it leads and a manager serves its table. */
export function isServing(cluster: ClusterView, tables: readonly WebTable[]): boolean {
  if (!cluster.ready) return false;
  return cluster.role !== "leader" || tables.some(({ key }) => cluster.manager(key)?.state === "working");
}

/** Says why `isServing` is false. */
export function whyNotServing({ ready, role }: ClusterView): string {
  if (ready) return "no manager serves its table";
  if (role === "seeking") return "no connection to the control database";
  return role === "stopping" ? "stopping" : "starting";
}

function managerInfo(view: ManagerView | null): ManagerInfo | null {
  if (view === null) return null;
  const { state, since, reason, stalled, running, sessions } = view;
  return {
    state,
    since: since.toISOString(),
    code: reason?.code ?? null,
    reason: reason?.message ?? null,
    stalled,
    running,
    sessions,
  };
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
