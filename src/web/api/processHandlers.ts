import { hostname } from "node:os";
import { appliedVersion, latestVersion } from "../../manager/schema/migrations.js";
import type { ClusterView } from "../../shared/clusterStatus.js";
import type { Client } from "../../shared/postgres/client.js";
import {
  readCluster,
  readConnections,
  readTableLock,
  readOtherLeaders,
  type ServerProcess,
} from "../../tasks/queries/clusterProcesses.js";
import { readSessions } from "../../tasks/queries/executorSessions.js";
import { serverNames, type WebTable } from "../data/webTable.js";
import { reasonOf } from "../errors.js";
import type { ApiContext, ControlDatabase } from "./route.js";
import type { ProcessInfo, Processes } from "./schemas.js";
import { managerInfo } from "./status.js";

export async function readProcesses({
  cluster,
  tables,
  version,
  maxSessions,
  control: getControl,
}: ApiContext): Promise<Processes> {
  const control = getControl();
  const [known, managers] = await Promise.all([
    readControl(control, cluster.controlPid),
    Promise.all(tables.all.map((table) => readManagerOf(cluster, table))),
  ]);
  return {
    name: control.name,
    control: { server: serverNames(control.target), database: control.target.database },
    self: {
      role: cluster.role,
      since: cluster.since.toISOString(),
      pid: process.pid,
      host: hostname(),
      version,
      node: process.version,
    },
    ...known,
    sessions: { most: maxSessions() },
    managers,
  };
}

type Known = Pick<Processes, "leader" | "standbys" | "otherLeaders" | "server" | "error">;

async function readControl({ name, pool }: ControlDatabase, ownPid: number | null): Promise<Known> {
  try {
    return await pool.read(async (client) => {
      const { leader, standbys } = await readCluster(client, name);
      const others = leader === null ? await readOtherLeaders(client, name) : [];
      const { most, taken } = await readConnections(client);
      return {
        leader: leader === null ? null : processInfo(leader, ownPid),
        standbys: standbys.map((each) => processInfo(each, ownPid)),
        otherLeaders: others.map(({ pid, address, since, database }) => ({ pid, address, since, database })),
        server: { version: await readServerVersion(client), connections: taken, maxConnections: most },
        error: null,
      };
    });
  } catch (error) {
    return { leader: null, standbys: [], otherLeaders: [], server: null, error: reasonOf(error) };
  }
}

async function readManagerOf(cluster: ClusterView, table: WebTable): Promise<Processes["managers"][number]> {
  const base = {
    id: table.id,
    ...table.names,
    manager: managerInfo(cluster.manager(table.key)),
    latestVersion,
  };
  try {
    return await table.pool.read(async (client) => {
      const { manager: backend } = await readTableLock(client, table.table);
      const { sessions, running } = await readSessions(client, table.table);
      return {
        ...base,
        process: backend === null ? null : processInfo(backend, null),
        sessions,
        running,
        serverVersion: await readServerVersion(client),
        tableVersion: await appliedVersion(client, table.table),
        error: null,
      };
    });
  } catch (error) {
    const unknown = { process: null, sessions: null, running: null, serverVersion: null, tableVersion: null };
    return { ...base, ...unknown, error: reasonOf(error) };
  }
}

const processInfo = ({ pid, address, since, user }: ServerProcess, ownPid: number | null): ProcessInfo => ({
  pid,
  address,
  since,
  user,
  isThis: pid === ownPid,
});

async function readServerVersion(client: Client): Promise<string> {
  const { rows } = await client.query<{ version: string }>("SELECT current_setting('server_version') AS version");
  return rows[0]?.version ?? "";
}
