import { basename, resolve } from "node:path";
import { entriesNamed } from "../../shared/config/entryNames.js";
import { defaultFileName } from "../../shared/config/findSource.js";
import type { ExplainedConfiguration } from "../../shared/config/loadConfiguration.js";
import { describeTarget } from "../../shared/postgres/target/target.js";
import { printableLine } from "../../shared/printable.js";
import { shellWord } from "../support/shellWord.js";

/** What the user of a terminal needs to know to go on. */
interface Started {
  readonly explained: ExplainedConfiguration;
  /** URL of the embedded server if other commands do not find it by themselves; otherwise null. */
  readonly hiddenServer: string | null;
  /** Number of entries that wait. */
  readonly waiting: number;
  /** URL of the page; null if there is none. */
  readonly page: string | null;
}

/** Returns the lines that a terminal shows when pg-task is ready. */
export function formatNextSteps({ explained, hiddenServer, waiting, page }: Started): string {
  const { entries, parameters, file } = explained.configuration;
  const [entry] = entriesNamed(entries, parameters["pg_task.default"] || "1");
  const server = hiddenServer === null ? "" : `DATABASE_URL=${hiddenServer} `;
  const config = file === null || file === resolve(defaultFileName) ? "" : ` --config ${shellWord(file)}`;
  const command = `${server}${commandName()}`;
  const steps = [
    ...(entry === undefined ? [] : [["connect", `psql ${shellWord(describeTarget(entry.target))}`]]),
    ["add a task", `${command} add "SELECT 42" --wait${config}`],
    ...(waiting === 0 ? [] : [["problems", `${command} doctor${config}`]]),
    ...(page === null ? [] : [["page", page]]),
  ];
  const isFromEnvironment = explained.controlFrom === "DATABASE_URL" || explained.controlFrom === "PG* variables";
  const where = isFromEnvironment
    ? "in another terminal with the same variables"
    : "in another terminal in this folder";
  const state = waiting === 0 ? "pg-task runs" : `pg-task runs, but ${waiting} of ${entries.length} tables wait`;
  const lines = steps.map(([what = "", how = ""]) => printableLine(`  ${what.padEnd(10)}  ${how}`));
  return `\n${[`${state}. To go on, ${where}:`, ...lines, "Ctrl-C stops it."].join("\n")}\n\n`;
}

/** Returns how the user can start commands: a global installation has its own name, npm runs the others. */
function commandName(): string {
  const isInstalled = basename(process.argv[1] ?? "") === "pg-task" && process.env["npm_command"] === undefined;
  return isInstalled ? "pg-task" : "npx pg-task";
}
