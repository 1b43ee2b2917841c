import { isServed, type ClusterView, type ManagerView } from "../../shared/clusterStatus.js";
import { reasonOf } from "../errors.js";
import { estimated } from "../../shared/count.js";
import type { Health, ManagerInfo, TableInfo, TableSummary } from "./schemas.js";
import type { WebTable } from "../data/webTable.js";

/** @param isTrusted whether the reader may see why managers wait, which can contain names of roles and columns */
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
  info === null || isTrusted
    ? info
    : { ...info, reason: null, sessionsRefused: info.sessionsRefused && { ...info.sessionsRefused, reason: null } };

/** A process serves if it stands by, or if it leads and a manager serves its table, or none is to. */
export function isServing(cluster: ClusterView, tables: readonly WebTable[]): boolean {
  if (!cluster.ready) return false;
  if (cluster.role !== "leader" || tables.some(({ key }) => servesTable(cluster.manager(key)))) return true;
  return tables.length > 0 && tables.every(({ refusal }) => refusal !== null);
}

export const servesTable = (view: ManagerView | null): boolean => isServed(view) && view?.sessionsRefused === null;

/** @param isTrusted whether the reader may see the reasons of the managers */
export function whyNotServing(cluster: ClusterView, tables: readonly WebTable[], isTrusted: boolean): string {
  const { ready, role } = cluster;
  if (ready) {
    const areRefused = tables.some(({ key }) => (cluster.manager(key)?.sessionsRefused ?? null) !== null);
    if (areRefused) return "the server refuses the sessions of the tables";
    const reasons = isTrusted ? tables.flatMap(({ key }) => cluster.manager(key)?.reason?.message ?? []) : [];
    return ["no manager serves its table", ...new Set(reasons)].join(": ");
  }
  if (role === "seeking") return "no connection to the control database";
  return role === "stopping" ? "stopping" : "starting";
}

export function managerInfo(view: ManagerView | null): ManagerInfo | null {
  if (view === null) return null;
  const { state, since, reason, stalled, sessionsRefused, running, sessions } = view;
  return {
    state,
    since: since.toISOString(),
    code: reason?.code ?? null,
    reason: reason?.message ?? null,
    stalled,
    sessionsRefused: sessionsRefused && { code: sessionsRefused.code, reason: sessionsRefused.message },
    running,
    sessions,
  };
}

/** In a large table, only the manager knows how many tasks run. */
function withRunning(summary: TableSummary, manager: ManagerInfo | null): TableSummary {
  const { states } = summary;
  if (manager === null || states.WORK.exact) return summary;
  return { ...summary, states: { ...states, WORK: estimated(manager.running) } };
}

export async function readTableInfo(cluster: ClusterView, table: WebTable): Promise<TableInfo> {
  const base = {
    id: table.id,
    ...table.names,
    share: table.entry.parameters["pg_task.share"],
    manager: managerInfo(cluster.manager(table.key)),
  };
  try {
    return { ...base, summary: withRunning(await table.summary(), base.manager), error: null };
  } catch (error) {
    return { ...base, summary: null, error: reasonOf(error) };
  }
}
