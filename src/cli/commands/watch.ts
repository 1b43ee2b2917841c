import { PgTaskError } from "../../shared/errors.js";
import { sleep } from "../../shared/backoff.js";
import { pollLimits, readGroups } from "../../tasks/queries/groups.js";
import { listTasks } from "../../tasks/queries/listTasks.js";
import type { TaskFilter } from "../../tasks/types.js";
import { chooseEntry, loadForCommand, withEntry, type OpenTable } from "../support/openTable.js";
import { filterFromOptions, type CommandOptions, type FilterOptions } from "../support/options.js";
import { withInterrupt, type Terminal } from "../terminal/terminal.js";
import { queryTableStatus } from "../status.js";
import { maxGroups, type Snapshot, ScreenLoop, unlessAborted } from "../watch/screen.js";

interface WatchOptions extends CommandOptions, FilterOptions {
  readonly interval: number;
}

const maxRateRows = 20_000;
const maxTasks = 50;
const maxCharacters = 1000;
const searchMs = 1_000;

export async function watch(terminal: Terminal, options: WatchOptions): Promise<number> {
  if (options.json !== true && !terminal.isInteractive) {
    throw new PgTaskError("USAGE", "watch needs a terminal: in scripts use pg-task watch --json");
  }
  const configuration = await loadForCommand(terminal, options);
  const entry = chooseEntry(terminal, configuration, options);
  const filter = filterFromOptions(options);
  const intervalMs = options.interval * 1000;
  if (options.json === true) {
    await withEntry(configuration, entry, "watch", (opened) => writeJsonLines(terminal, opened, filter, intervalMs));
  } else {
    await new ScreenLoop(terminal, { configuration, entry, filter, intervalMs, readSnapshot }).run();
  }
  return 0;
}

/** Prints one line per update until a signal arrives or the reader closes the output. */
async function writeJsonLines(
  terminal: Terminal,
  opened: OpenTable,
  filter: TaskFilter,
  intervalMs: number,
): Promise<void> {
  await withInterrupt(async (signal) => {
    const writeLines = async (): Promise<void> => {
      do {
        const { status, groups } = await readSnapshot(opened);
        const end = performance.now() + searchMs;
        const request = { filter, limit: maxTasks, characters: maxCharacters };
        const { tasks } = await listTasks(opened.client, opened.table, request, () => performance.now() >= end);
        const at = new Date().toISOString();
        if (!signal.aborted) terminal.write(`${JSON.stringify({ at, ...status, groups, tasks })}\n`);
      } while (await sleep(intervalMs, signal));
    };
    await unlessAborted(writeLines(), signal);
  });
}

/** Reads everything that an update shows, except the tasks. */
async function readSnapshot(opened: OpenTable): Promise<Snapshot> {
  const options = { limit: maxGroups, ended: false, limits: pollLimits };
  return {
    status: await queryTableStatus(opened, maxRateRows),
    groups: await readGroups(opened.client, opened.table, options),
  };
}
