import { pauseTasks, readPauses, resumeTasks } from "../../tasks/pauses.js";
import { isSome } from "../../shared/count.js";
import { readGroups } from "../../tasks/queries/groups.js";
import { PgTaskError } from "../../shared/errors.js";
import { changeIds, changeWithKey } from "./changeTasks.js";
import { withTable, type OpenTable } from "../support/openTable.js";
import { keyFromOptions, type CommandOptions } from "../support/options.js";
import { jsonText, printableLine, quotedLine } from "../../shared/printable.js";
import type { Terminal } from "../terminal/terminal.js";

interface PauseOptions extends CommandOptions {
  readonly schedule?: readonly string[];
  readonly key?: string;
  readonly role?: string;
  readonly group?: string;
  readonly reason?: string;
}

function applyTableArgument(table: string | undefined, options: PauseOptions): PauseOptions {
  if (table === undefined) return options;
  return { ...options, table, unmatchedHint: `${JSON.stringify(table)} may be a group: give it with --group` };
}

/**
 * Such a pause is stored only as the plan `infinity` of the row, so it has no reason.
 *
 * @returns null if the options name no schedule
 */
async function changeSchedules(
  terminal: Terminal,
  change: "pause" | "resume",
  options: PauseOptions,
): Promise<number | null> {
  const { schedule, group, reason } = options;
  const filter = keyFromOptions(options);
  if (schedule === undefined && filter === null) return null;
  if (schedule !== undefined && filter !== null) {
    throw new PgTaskError("USAGE", "expected --schedule or --key, got both");
  }
  const name = filter === null ? "--schedule" : "--key";
  if (group !== undefined) throw new PgTaskError("USAGE", `expected --group or ${name}, got both`);
  if (reason !== undefined) throw new PgTaskError("USAGE", `--reason cannot be combined with ${name}`);
  if (filter !== null) return await changeWithKey(terminal, change, filter, options);
  return await changeIds(terminal, change, schedule ?? [], options);
}

export async function pause(terminal: Terminal, name: string | undefined, given: PauseOptions): Promise<number> {
  const options = applyTableArgument(name, given);
  const code = await changeSchedules(terminal, "pause", options);
  if (code !== null) return code;
  const { group = null, reason = null } = options;
  return await withTable(terminal, options, "pause", async (opened) => {
    const { client, table } = opened;
    const changed = await pauseTasks(client, table, group, reason);
    const unused = changed && group !== null && (await isUnused(opened, group));
    const outcome = `${changed ? "paused" : "already paused"}${unused ? "; no waiting or running task has this group now" : ""}`;
    return printResult(terminal, options, table.qualified, { changed, paused: true }, outcome);
  });
}

const maxGroups = 1_000;

/** False if there are too many tasks or groups to be sure. */
async function isUnused({ client, table }: OpenTable, group: string): Promise<boolean> {
  const { groups, complete } = await readGroups(client, table, { limit: maxGroups, ended: false });
  if (!complete || groups.length === maxGroups) return false;
  return !groups.some((each) => each.group === group && (each.running > 0 || isSome(each.waiting) !== false));
}

export async function resume(terminal: Terminal, name: string | undefined, given: PauseOptions): Promise<number> {
  const options = applyTableArgument(name, given);
  const code = await changeSchedules(terminal, "resume", options);
  if (code !== null) return code;
  const { group = null } = options;
  return await withTable(terminal, options, "resume", async ({ client, table }) => {
    const changed = await resumeTasks(client, table, group);
    const left = await readPauses(client, table);
    const still = left.some((each) => each.group === null || each.group === group);
    const outcome = changed ? "resumed" : "was not paused";
    const rest = group !== null && still ? "; the whole table is still paused" : "";
    const others = left.filter((each) => each.group !== null).length;
    const groups = group === null && others > 0 ? `; still paused groups: ${others}` : "";
    return printResult(terminal, options, table.qualified, { changed, paused: still }, `${outcome}${rest}${groups}`);
  });
}

function printResult(
  terminal: Terminal,
  { group, json }: PauseOptions,
  table: string,
  result: { readonly changed: boolean; readonly paused: boolean },
  outcome: string,
): number {
  if (json === true) {
    terminal.write(`${jsonText({ table, group: group ?? null, ...result })}\n`);
    return 0;
  }
  const what = group === undefined ? "" : `group ${quotedLine(group)} of `;
  terminal.write(`${what}${printableLine(table)} ${outcome}\n`);
  return 0;
}
