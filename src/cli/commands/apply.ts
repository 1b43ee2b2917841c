import { exitCodes } from "../../shared/errorCodes.js";
import { maskConnectionString } from "../../shared/postgres/connectionString/maskConnectionString.js";
import { jsonText, printableLine } from "../../shared/printable.js";
import { applyJobs, inTransaction, type JobChange, type JobResult } from "../../tasks/jobs/applyJobs.js";
import { commandExitCodes } from "../support/exitCodes.js";
import { parseJobs, type JobsFile } from "../support/jobsFile.js";
import { withTable, type OpenTable } from "../support/openTable.js";
import type { CommandOptions } from "../support/options.js";
import { readText } from "../support/readText.js";
import { copyField, formatCount, truncate } from "../terminal/format.js";
import { colourText, confirmChange, type Colour, type Terminal } from "../terminal/terminal.js";

interface ApplyOptions extends CommandOptions {
  readonly dryRun?: true;
  readonly prune?: true;
  readonly yes?: true;
}

export async function apply(terminal: Terminal, file: string, options: ApplyOptions): Promise<number> {
  const jobs = parseJobs(file, await readText(terminal, file, "jobs"));
  return await withTable(terminal, options, "apply", async (opened) => {
    const first = options.dryRun === true || options.prune === true;
    let results = await run(opened, jobs, options, !first);
    if (first && options.dryRun !== true && isAccepted(results)) {
      const ended = results.filter(({ outcome }) => outcome === "ended").map(({ key }) => JSON.stringify(key));
      const question = `End ${formatCount(ended.length, "schedule")}: ${printableLine(ended.join(", "))}?`;
      if (ended.length > 0 && !(await confirmChange(terminal, options.yes === true, question))) {
        return commandExitCodes.notAll;
      }
      results = await run(opened, jobs, options, true);
    }
    return print(terminal, results, options);
  });
}

/** Nothing of it is committed if a job is refused. */
async function run(
  { client, table }: OpenTable,
  { jobs, prefix }: JobsFile,
  { prune }: ApplyOptions,
  commit: boolean,
): Promise<readonly JobResult[]> {
  const work = () => applyJobs(client, table, jobs, prune === true ? prefix : null);
  return await inTransaction(client, table, work, (results) => commit && isAccepted(results));
}

const isAccepted = (results: readonly JobResult[]): boolean => results.every(({ outcome }) => outcome !== "refused");

function print(terminal: Terminal, results: readonly JobResult[], { json, dryRun }: ApplyOptions): number {
  const shown = results.map((each) => ({ ...each, changes: each.changes.map(masked) }));
  const applied = isAccepted(results) && dryRun !== true;
  if (json === true) terminal.write(`${jsonText({ applied, jobs: shown })}\n`);
  else for (const each of shown) printJob(terminal, each);
  if (json !== true && terminal.isTerminal) terminal.write(`${summary(results)}\n`);
  if (!applied) terminal.writeError(`pg-task: ${dryRun === true ? "dry run: " : ""}nothing was changed\n`);
  return isAccepted(results) ? commandExitCodes.done : exitCodes.CONFIG;
}

const mask = (value: string | null): string | null => (value === null ? null : maskConnectionString(value));

function masked({ column, from, to }: JobChange): JobChange {
  return column === "remote" ? { column, from: mask(from), to: mask(to) } : { column, from, to };
}

const marks: Readonly<Record<JobResult["outcome"], readonly [mark: string, colour: Colour | null]>> = {
  added: ["+", "green"],
  changed: ["~", "yellow"],
  same: ["=", null],
  ended: ["-", "red"],
  over: ["=", null],
  refused: ["!", "red"],
};

const wordOf = ({ outcome }: JobResult): string => (outcome === "same" ? "the same" : outcome);

function printJob(terminal: Terminal, job: JobResult): void {
  const { key, outcome, changes, paused, reason } = job;
  const texts = changes.map(({ column, from, to }) => `${column}: ${from ?? "null"} → ${to ?? "null"}`);
  const notes = [...(paused && outcome !== "ended" ? ["paused"] : []), ...(reason === null ? [] : [reason])];
  if (!terminal.isTerminal) {
    terminal.write(`${[key, outcome, [...notes, ...texts].join("; ")].map(copyField).join("\t")}\n`);
    return;
  }
  const [mark, colour] = marks[outcome];
  const line = printableLine(`${mark} ${key}: ${[wordOf(job), ...notes].join(", ")}`);
  terminal.write(`${colourText(terminal, colour, line)}\n`);
  for (const text of texts) terminal.write(`${truncate(`    ${printableLine(text)}`, terminal.columns)}\n`);
}

function summary(results: readonly JobResult[]): string {
  const words = [...new Set(results.map(wordOf))];
  const counts = words.map((word) => `${results.filter((each) => wordOf(each) === word).length} ${word}`);
  return counts.length === 0 ? "no jobs" : counts.join(", ");
}
