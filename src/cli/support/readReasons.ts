import { disconnect } from "../../shared/postgres/client.js";
import { explainTask } from "../../tasks/explain/explainTask.js";
import type { Reason } from "../../tasks/explain/reason.js";
import { readCluster } from "../../tasks/queries/clusterProcesses.js";
import { formatFullTime } from "../terminal/format.js";
import { connectForCommand, type OpenTable } from "./openTable.js";
import { withOptionsInRemedy } from "./pastedCommands.js";

/**
 * Returns the reasons why a task does not run, or null if there is no such task. The commands in their remedies have the
 * options that select the table.
 *
 * @param options.localTimes whether their texts show times as a terminal does, instead of in ISO 8601
 */
export async function readReasons(
  opened: OpenTable,
  id: string,
  options: { readonly localTimes: boolean },
): Promise<Reason[] | null> {
  const { client, table, entry, configuration, given } = opened;
  const reasons = await explainTask(client, table, id, {
    entry,
    entries: configuration.entries,
    maxSessions: configuration.parameters["pg_conf.max"],
    hasLeader: () => hasLeader(opened),
    lockOn: client,
    ...(options.localTimes ? { formatTime: formatFullTime } : {}),
  });
  return reasons?.map((reason) => withOptionsInRemedy(reason, given)) ?? null;
}

/** Whether the cluster has a leader; null if the control connection fails. */
async function hasLeader({ configuration }: OpenTable): Promise<boolean | null> {
  const { control, parameters } = configuration;
  try {
    const client = await connectForCommand(control, "why");
    try {
      return (await readCluster(client, parameters["pg_conf.name"])).leader !== null;
    } finally {
      await disconnect(client);
    }
  } catch {
    return null;
  }
}
