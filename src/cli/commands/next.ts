import { jsonText } from "../../shared/printable.js";
import { taskTable } from "../../manager/schema/taskTable.js";
import { PgTaskError, withMessage } from "../../shared/errors.js";
import type { Client } from "../../shared/postgres/client.js";
import { readRuleTimes, type RuleTime, type RuleTimes } from "../../tasks/queries/schedules.js";
import { withSuggestion } from "../support/suggestions.js";
import { toTaskError } from "../../tasks/taskError.js";
import { chooseEntry, withClient, findEntries, loadForCommand, requirePassword } from "../support/openTable.js";
import type { CommandOptions } from "../support/options.js";
import { renderTable, type TableColumn } from "../terminal/table.js";
import { colourText, type Terminal } from "../terminal/terminal.js";

interface NextOptions extends CommandOptions {
  readonly zone?: string;
  readonly since?: string;
  readonly count: number;
}

export async function next(terminal: Terminal, rule: string, options: NextOptions): Promise<number> {
  const found = await readTimes(terminal, rule, options);
  if (options.json === true) {
    terminal.write(`${jsonText({ rule, ...found })}\n`);
    return 0;
  }
  for (const line of renderTable(terminal, timeColumns, found.times)) terminal.write(`${line}\n`);
  if (terminal.isTerminal) terminal.write(colourText(terminal, "grey", `${describeEnd(found, options.count)}\n`));
  return 0;
}

/** All servers know all rules, so any entry will do. */
async function readTimes(terminal: Terminal, rule: string, options: NextOptions): Promise<RuleTimes> {
  const configuration = await loadForCommand(terminal, options);
  const found = findEntries(configuration, options);
  const usable = found.find(({ missingPassword }) => missingPassword === undefined);
  const entry = usable ?? requirePassword(found[0] ?? chooseEntry(terminal, configuration, options));
  const table = taskTable(entry.schema, entry.table);
  const { zone = null, since = null, count } = options;
  const defaultZone = entry.parameters["pg_task.zone"];
  const read = (client: Client): Promise<RuleTimes> =>
    readRuleTimes(client, table.schema, { rule, zone, defaultZone, since, count }).catch(async (error: unknown) => {
      throw await withSuggestion(client, describeInterval(toTaskError(error, table)));
    });
  return await withClient(entry.target, "next", read, entry.target === configuration.control);
}

function describeInterval(error: unknown): unknown {
  if (!(error instanceof PgTaskError) || !error.message.includes("expected a schedule, got an interval")) return error;
  const text =
    "next takes a rule; with an interval as repeat, each planned time is simply the one before plus the interval";
  return withMessage(error, `${error.message}: ${text}`);
}

const formatWall = ({ wall, offset }: RuleTime): string => `${wall}${offset}`;

const timeColumns: readonly TableColumn<RuleTime>[] = [
  { title: "time", value: (time) => formatWall(time).replace(" ", "T"), display: formatWall },
  { title: "utc", value: ({ at }) => new Date(at).toISOString().replace(/\.\d+/, "") },
  { title: "note", value: ({ note }) => note, flexible: true },
];

function describeEnd({ zone, times }: RuleTimes, count: number): string {
  if (times.length === 0) return `zone ${zone}; the rule has no such time`;
  return times.length < count ? `zone ${zone}; the rule has no further times` : `zone ${zone}`;
}
