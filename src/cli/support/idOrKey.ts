import type { Command } from "commander";
import { PgTaskError } from "../../shared/errors.js";
import { printableLine } from "../../shared/printable.js";
import { readTaskWithKey } from "../../tasks/queries/tasksWithKey.js";
import type { OpenTable } from "./openTable.js";
import { parseId, type CommandOptions } from "./options.js";

/** Options of a command that reads one task. */
export interface OneTaskOptions extends CommandOptions {
  readonly key?: string;
}

/** Lets the command name one task by its id or by its key. */
export const addIdOrKey = (command: Command): Command =>
  command
    .argument("[id]", "the task's id", parseId)
    .option(
      "--key <key>",
      "the one that waits with this key, else the one that runs, else the newest; instead of the id",
    );

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
