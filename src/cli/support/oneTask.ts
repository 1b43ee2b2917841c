import { PgTaskError } from "../../shared/errors.js";
import { printableLine } from "../../shared/printable.js";
import { readTaskWithKey } from "../../tasks/queries/tasksWithKey.js";
import { type OpenTable, connectForCommand } from "./openTable.js";
import type { CommandOptions } from "./options.js";
import { disconnect } from "../../shared/postgres/client.js";
import { explainTask } from "../../tasks/explain/explainTask.js";
import type { Reason } from "../../tasks/explain/reason.js";
import { readCluster } from "../../tasks/queries/clusterProcesses.js";
import { formatFullTime } from "../terminal/format.js";
import { withOptionsInRemedy } from "./pastedCommands.js";

/** Options of a command that reads one task. */
export interface OneTaskOptions extends CommandOptions {
  readonly key?: string;
}

/** @throws PgTaskError USAGE unless either an id or a key is given */
export function requireIdOrKey(id: string | undefined, { key }: OneTaskOptions): void {
  if (id === undefined && key === undefined) throw new PgTaskError("USAGE", "expected an id or --key");
  if (id !== undefined && key !== undefined) throw new PgTaskError("USAGE", "expected an id or --key, got both");
}

/** Returns the id that is given, or that of the task with the key. Null if no task has the key. */
export async function readGivenId(
  { client, table }: OpenTable,
  id: string | undefined,
  { key = "" }: OneTaskOptions,
): Promise<string | null> {
  return id ?? (await readTaskWithKey(client, table, key))?.id ?? null;
}

/** Names the missing task as it was given. */
export const describeMissing = (id: string | undefined, { key = "" }: OneTaskOptions): string =>
  id === undefined ? `no task with the key ${printableLine(JSON.stringify(key))}` : `no task ${id}`;

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
