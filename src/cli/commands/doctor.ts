import type { Command } from "commander";
import type { Configuration, Entry } from "../../shared/config/types.js";
import { disconnect } from "../../shared/postgres/client.js";
import { describeTarget } from "../../shared/postgres/target/describeTarget.js";
import { errorKinds, exitCodes, toReport } from "../../shared/errors.js";
import { exitCode } from "../support/exitCodes.js";
import { fail, ok, type Check } from "../doctor/check.js";
import { checkServer, direct } from "../doctor/server.js";
import { stalled } from "../doctor/stalled.js";
import { checkTable } from "../doctor/table.js";
import {
  chooseEntry,
  connectFor,
  loadForCommand,
  matchingEntries,
  onEntry,
} from "../support/openTable.js";
import { withTableOptions, type CommandOptions } from "../support/options.js";
import type { CommandRun } from "../support/run.js";
import { field, printableLine } from "../terminal/escape.js";
import { coloured, type Colour, type Terminal } from "../terminal/terminal.js";

/** What was looked at in one place. */
interface Section {
  readonly place: string;
  readonly checks: readonly Check[];
}

export function declareDoctor(program: Command, run: CommandRun): void {
  const command = program
    .command("doctor")
    .description(
      "look for what keeps pg-task from working well, and say what to do; changes nothing",
    );
  withTableOptions(command).action((options: CommandOptions) =>
    run((terminal) => doctor(terminal, options)),
  );
}

async function doctor(terminal: Terminal, options: CommandOptions): Promise<number> {
  const configuration = await loadForCommand(options);
  const entries = matchingEntries(configuration, options);
  if (entries.length === 0) chooseEntry(configuration, options);
  const sections: Section[] = [await controlSection(configuration)];
  for (const entry of entries) sections.push(await entrySection(configuration, entry));
  const failed = sections.flatMap(({ checks }) => checks).filter(({ level }) => level === "fail");
  const code = failed[0]?.exitCode ?? exitCode.done;
  if (options.json === true) {
    terminal.write(`${JSON.stringify({ sections, exitCode: code }, null, 2)}\n`);
    return code;
  }
  for (const section of sections) terminal.write(sectionText(terminal, section));
  return code;
}

async function controlSection(configuration: Configuration): Promise<Section> {
  const { control, file } = configuration;
  const place = `control connection ${describeTarget(control)}`;
  const read = ok(
    "configuration",
    file === null ? "no file, and none is needed" : `${file} is valid`,
  );
  try {
    const client = await connectFor(control, "doctor");
    try {
      return { place, checks: [read, ...(await checkServer(client, configuration))] };
    } finally {
      await disconnect(client);
    }
  } catch (error) {
    return { place, checks: [read, refused("reached", error)] };
  }
}

async function entrySection(configuration: Configuration, entry: Entry): Promise<Section> {
  const place = `${entry.target.database} ${entry.schema}.${entry.table}`;
  try {
    return await onEntry(configuration, entry, "doctor", async (opened) => {
      const checks = await checkTable(opened.client, opened.table);
      const readable = !checks.some(({ name, level }) => name === "columns" && level === "fail");
      return { place, checks: [direct, ...checks, ...(readable ? [await stalled(opened)] : [])] };
    });
  } catch (error) {
    return { place, checks: [refused("table", error)] };
  }
}

function refused(name: string, error: unknown): Check {
  const { code, message } = toReport(error);
  if (code === "INTERNAL") throw error;
  const { family, remedy } = errorKinds[code];
  return fail(name, message, remedy, exitCodes[family]);
}

const colours: Readonly<Record<Check["level"], Colour>> = {
  ok: "green",
  warn: "yellow",
  fail: "red",
};

function sectionText(terminal: Terminal, { place, checks }: Section): string {
  if (!terminal.isTerminal) {
    return checks
      .map(
        ({ name, level, text, remedy }) =>
          `${[level, place, name, text, remedy ?? null].map(field).join("\t")}\n`,
      )
      .join("");
  }
  const lines = checks.flatMap(({ name, level, text, remedy }) => [
    `  ${coloured(terminal, colours[level], level.padEnd(4))}  ${printableLine(`${name}: ${text}`)}`,
    ...(remedy === undefined
      ? []
      : [`        ${coloured(terminal, "grey", printableLine(`do: ${remedy}`))}`]),
  ]);
  return `${coloured(terminal, "bold", printableLine(place))}\n${lines.join("\n")}\n`;
}
