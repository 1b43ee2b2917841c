import type { Command } from "commander";
import type { Configuration, Entry } from "../../shared/config/types.js";
import { disconnect } from "../../shared/postgres/client.js";
import { describeTarget } from "../../shared/postgres/target/target.js";
import { errorDefinitions, exitCodes } from "../../shared/errorCodes.js";
import { PgTaskError, toReport } from "../../shared/errors.js";
import { commandExitCodes } from "../support/exitCodes.js";
import { fail, ok, type Check } from "../inspection/check.js";
import { checkServer, directConnection, withRunningManager } from "../doctor/server.js";
import { checkStalls } from "../doctor/stalled.js";
import { checkTable } from "../doctor/table.js";
import {
  chooseEntry,
  connectForCommand,
  loadForCommand,
  findEntries,
  optionsFor,
  withEntry,
  type OpenTable,
} from "../support/openTable.js";
import { withOptionsInRemedy } from "../support/pastedCommands.js";
import { addTableOptions, type CommandOptions, type RunCommand, type TableOptions } from "../support/options.js";
import { copyField } from "../terminal/copyField.js";
import { printableLine } from "../../shared/printable.js";
import { colourText, type Colour, type Terminal } from "../terminal/terminal.js";

/** The results of the checks on one connection or one table. */
interface Section {
  /** Names the connection or the table. */
  readonly section: string;
  readonly checks: readonly Check[];
}

export function registerDoctor(program: Command, run: RunCommand): void {
  const command = program.command("doctor").description("find problems and suggest remedies; changes nothing");
  addTableOptions(command).action((options: CommandOptions) => run((terminal) => doctor(terminal, options)));
}

async function doctor(terminal: Terminal, options: CommandOptions): Promise<number> {
  const configuration = await loadForCommand(terminal, options);
  const entries = findEntries(configuration, options);
  if (entries.length === 0) chooseEntry(terminal, configuration, options);
  const control = await checkControl(configuration);
  const sections: Section[] = [];
  for (const entry of entries) {
    const selecting = optionsFor(configuration, entry, options);
    sections.push(withOptions(await checkEntry(configuration, entry, selecting), selecting));
  }
  const isServed = sections.some(({ checks }) =>
    checks.some(({ name, level }) => name === "manager" && level === "ok"),
  );
  const controlChecks = isServed ? withRunningManager(control.checks) : control.checks;
  sections.unshift(withOptions({ ...control, checks: controlChecks }, options));
  const failed = sections.flatMap(({ checks }) => checks).filter(({ level }) => level === "fail");
  const code = failed[0]?.exitCode ?? commandExitCodes.done;
  if (options.json === true) {
    terminal.write(`${JSON.stringify({ sections, exitCode: code }, null, 2)}\n`);
    return code;
  }
  for (const section of sections) terminal.write(formatSection(terminal, section));
  return code;
}

/** Returns a section whose remedies have the options that select its table. */
const withOptions = ({ section, checks }: Section, options: TableOptions): Section => ({
  section,
  checks: checks.map((check) => withOptionsInRemedy(check, options)),
});

async function checkControl(configuration: Configuration): Promise<Section> {
  const { control, file } = configuration;
  const section = `control connection ${describeTarget(control)}`;
  const read = ok("configuration", file === null ? "no file, none is needed" : `${file} is valid`);
  try {
    const client = await connectForCommand(control, "doctor", { isControl: true });
    try {
      return { section, checks: [read, ...(await checkServer(client, configuration))] };
    } finally {
      await disconnect(client);
    }
  } catch (error) {
    return { section, checks: [read, failedCheck("reached", error)] };
  }
}

async function checkEntry(configuration: Configuration, entry: Entry, given: TableOptions): Promise<Section> {
  const section = `${entry.target.database} ${entry.schema}.${entry.table}`;
  try {
    const inspect = async (opened: OpenTable): Promise<Section> => {
      const checks = await checkTable(opened.client, opened.table, {
        parameters: entry.parameters,
        fileZone: configuration.parameters["pg_task.zone"],
      });
      // If columns or privileges are missing, no check has read the tasks.
      const isReadable = checks.some(({ name }) => name === "backlog");
      return {
        section,
        checks: [directConnection, ...checks, ...(isReadable ? [await checkStalls(opened)] : [])],
      };
    };
    return await withEntry(configuration, entry, "doctor", inspect, { given });
  } catch (error) {
    return { section, checks: [failedCheck("table", error)] };
  }
}

function failedCheck(name: string, error: unknown): Check {
  const { code, message } = toReport(error);
  if (code === "INTERNAL") throw error;
  const { family, remedy } = errorDefinitions[code];
  const own = error instanceof PgTaskError ? error.remedy : undefined;
  if (own === undefined) return fail(name, message, remedy, exitCodes[family]);
  // Where there is only a message, it ends with the remedy, which would be said twice here.
  const text = message.endsWith(`: ${own}`) ? message.slice(0, -own.length - 2) : message;
  return fail(name, text, own, exitCodes[family]);
}

const colours: Readonly<Record<Check["level"], Colour>> = {
  ok: "green",
  warn: "yellow",
  fail: "red",
};

function formatSection(terminal: Terminal, { section, checks }: Section): string {
  if (!terminal.isTerminal) {
    return checks
      .map(
        ({ name, level, text, remedy }) =>
          `${[level, section, name, text, remedy ?? null].map(copyField).join("\t")}\n`,
      )
      .join("");
  }
  const lines = checks.flatMap(({ name, level, text, remedy }) => [
    `  ${colourText(terminal, colours[level], level.padEnd(4))}  ${printableLine(`${name}: ${text}`)}`,
    ...(remedy === undefined ? [] : [`        ${colourText(terminal, "grey", printableLine(`do: ${remedy}`))}`]),
  ]);
  return `${colourText(terminal, "bold", printableLine(section))}\n${lines.join("\n")}\n`;
}
