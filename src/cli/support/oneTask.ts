import { omitUndefined } from "../../shared/omitUndefined.js";
import { PgTaskError } from "../../shared/errors.js";
import { printableLine } from "../../shared/printable.js";
import { readTaskWithKey } from "../../tasks/queries/tasksWithKey.js";
import { withClient, withTable, type OpenTable } from "./openTable.js";
import { keyFromOptions, type CommandOptions } from "./options.js";
import { explainTask } from "../../tasks/explain/explainTask.js";
import type { Reason } from "../../tasks/explain/reason.js";
import { readCluster } from "../../tasks/queries/clusterProcesses.js";
import { formatFullTime } from "../terminal/format.js";
import type { Terminal } from "../terminal/terminal.js";
import { withOptionsInRemedy } from "./pastedCommands.js";

export interface OneTaskOptions extends CommandOptions {
  readonly key?: string;
  readonly role?: string;
}

/**
 * Writes an error and returns null if there is no such task.
 *
 * @throws PgTaskError USAGE unless either an id or a key is given
 */
export async function readOneTask<T>(
  terminal: Terminal,
  command: string,
  id: string | undefined,
  options: OneTaskOptions,
  read: (opened: OpenTable, id: string) => Promise<T | null>,
): Promise<{ readonly id: string; readonly found: T } | null> {
  const filter = keyFromOptions(options);
  if ((id === undefined) === (filter === null))
    throw new PgTaskError("USAGE", `expected an id or --key${id === undefined ? "" : ", got both"}`);
  const result = await withTable(terminal, options, command, async (opened) => {
    const named = id ?? (filter && (await readTaskWithKey(opened.client, opened.table, filter)))?.id;
    const found = named === undefined ? null : await read(opened, named);
    return named === undefined || found === null ? null : { id: named, found };
  });
  if (result === null)
    terminal.writeError(`pg-task: no task ${id ?? `with the key ${printableLine(JSON.stringify(filter?.key))}`}\n`);
  return result;
}

/**
 * The commands in the remedies have the options that select the table. Null if there is no such task.
 *
 * @param options.localTimes whether texts show times as a terminal does, instead of in ISO 8601
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
  return reasons?.map((reason) => withOptionsInRemedy(withoutPage(reason), given)) ?? null;
}

const withoutPage = ({ code, text, remedy, tasks, action }: Reason): Reason => ({
  code,
  text,
  ...omitUndefined({ remedy, tasks, action }),
});

async function hasLeader({ configuration }: OpenTable): Promise<boolean | null> {
  const { control, parameters } = configuration;
  try {
    const { leader } = await withClient(control, "why", (client) => readCluster(client, parameters["pg_conf.name"]));
    return leader !== null;
  } catch {
    return null;
  }
}
