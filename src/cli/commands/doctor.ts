import type { Configuration, Entry } from "../../shared/config/types.js";
import { type Client } from "../../shared/postgres/client.js";
import { describeTarget } from "../../shared/postgres/target/target.js";
import { errorDefinitions, exitCodes } from "../../shared/errorCodes.js";
import { PgTaskError, toReport } from "../../shared/errors.js";
import { commandExitCodes } from "../support/exitCodes.js";
import { fail, ok, type Finding, warn } from "../inspection.js";
import { checkServer, directConnection, withRunningManager } from "../doctor/server.js";
import { checkRemotes } from "../doctor/remotes.js";
import { checkTable } from "../doctor/table.js";
import {
  chooseEntry,
  withClient,
  loadForCommand,
  findEntries,
  optionsFor,
  withEntry,
  type OpenTable,
} from "../support/openTable.js";
import { releaseOf } from "../support/released.js";
import { describeReleased, readReleased, type ReleasedDatabase } from "../../supervisor/releasedDatabases.js";
import { withOptionsInRemedy } from "../support/pastedCommands.js";
import type { CommandOptions, TableOptions } from "../support/options.js";
import { copyField } from "../terminal/format.js";
import { jsonText, printableLine } from "../../shared/printable.js";
import { colourText, type Colour, type Terminal } from "../terminal/terminal.js";
import { setTimeout as sleep } from "node:timers/promises";
import { stalledMs } from "../../shared/tuning.js";
import { readSessions, readSessionRefusal, refusalRemedy } from "../../tasks/queries/executorSessions.js";
import { readUserTriggers } from "../../tasks/queries/tableFacts.js";
import { readReasons } from "../support/oneTask.js";
import { groupHeads, startBlockers } from "../../manager/schema/startRule.sql.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";

interface Section {
  readonly section: string;
  readonly checks: readonly Finding[];
}

export async function doctor(terminal: Terminal, options: CommandOptions): Promise<number> {
  const configuration = await loadForCommand(terminal, options);
  const entries = findEntries(configuration, options);
  if (entries.length === 0) chooseEntry(terminal, configuration, options);
  const { control, released } = await checkControl(configuration);
  const sections: Section[] = [];
  for (const entry of entries) {
    const found = releaseOf(released, entry);
    if (found !== undefined) {
      const remedy = `pg-task serve ${entry.target.database}`;
      sections.push({ section: sectionOf(entry), checks: [warn("released", describeReleased(found), remedy)] });
      continue;
    }
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
    terminal.write(`${jsonText({ sections, exitCode: code })}\n`);
    return code;
  }
  for (const section of sections) terminal.write(formatSection(terminal, section));
  return code;
}

const withOptions = ({ section, checks }: Section, options: TableOptions): Section => ({
  section,
  checks: checks.map((check) => withOptionsInRemedy(check, options)),
});

const sectionOf = ({ target, schema, table }: Entry): string => `${target.database} ${schema}.${table}`;

async function checkControl(
  configuration: Configuration,
): Promise<{ readonly control: Section; readonly released: readonly ReleasedDatabase[] }> {
  const { control, file } = configuration;
  const section = `control connection ${describeTarget(control)}`;
  const read = ok("configuration", file === null ? "no file, none is needed" : `${file} is valid`);
  try {
    return await withClient(
      control,
      "doctor",
      async (client) => ({
        control: { section, checks: [read, ...(await checkServer(client, configuration))] },
        released: await readReleased(client, configuration),
      }),
      true,
    );
  } catch (error) {
    return { control: { section, checks: [read, failedCheck("reached", error)] }, released: [] };
  }
}

async function checkEntry(configuration: Configuration, entry: Entry, given: TableOptions): Promise<Section> {
  const section = sectionOf(entry);
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
        checks: [
          directConnection,
          ...checks,
          ...(isReadable ? [...(await checkRemotes(opened)), await checkStalls(opened)] : []),
        ],
      };
    };
    return await withEntry(configuration, entry, "doctor", inspect, { given });
  } catch (error) {
    return { section, checks: [failedCheck("table", error)] };
  }
}

function failedCheck(name: string, error: unknown): Finding {
  const { code, message } = toReport(error);
  if (code === "INTERNAL") throw error;
  const { family, remedy } = errorDefinitions[code];
  const own = error instanceof PgTaskError ? error.remedy : undefined;
  if (own === undefined) return fail(name, message, remedy, exitCodes[family]);
  // Where there is only a message, it ends with the remedy, which would be said twice here.
  const text = message.endsWith(`: ${own}`) ? message.slice(0, -own.length - 2) : message;
  return fail(name, text, own, exitCodes[family]);
}

const colours: Readonly<Record<Finding["level"], Colour>> = {
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

const pollMs = 500;
const maxTasks = 5;

/** Returns as soon as there is no such task, and after 10 s at the latest. */
export async function checkStalls(opened: OpenTable): Promise<Finding> {
  const until = performance.now() + stalledMs;
  let startable = await readStartable(opened, null);
  while (startable.length > 0 && performance.now() < until) {
    await sleep(pollMs);
    startable = await readStartable(opened, startable);
  }
  if (startable.length === 0) return ok("stalls", "no due task that could start");
  const list = startable.map(({ id, group }) => `${id} of group ${JSON.stringify(group)}`);
  const triggers = await readUserTriggers(opened.client, opened.table);
  const refusal = await readSessionRefusal(opened.client, opened.table);
  if (refusal !== null) {
    return fail(
      "stalls",
      `due, not claimed in ${stalledMs / 1000} s, no session is free, and the server refuses new ones, ${refusal.reason}: ${list.join(", ")}`,
      refusalRemedy(refusal),
      exitCodes.CONNECTION,
    );
  }
  // If a trigger rejects the first task that is claimed, no session is opened.
  if (triggers.length === 0 && (await readSessions(opened.client, opened.table)).sessions === 0) {
    return fail(
      "stalls",
      `due, not claimed in ${stalledMs / 1000} s, and no session of the table is open: ${list.join(", ")}`,
      'the log of pg-task says why it cannot open one ("cannot open a session, tasks wait"): for example, the password of the role was changed on the server, so give pg-task the new one',
      exitCodes.CONNECTION,
    );
  }
  const triggerHint =
    triggers.length === 0
      ? ""
      : `; a trigger of yours that returns NULL for a task's row keeps it from starting, see ${triggers.join(", ")}`;
  const bug = triggers.length === 0 ? "report a bug" : "and none of these does, report a bug";
  return warn(
    "stalls",
    `due, not claimed in ${stalledMs / 1000} s, and neither rows nor sessions show why: ${list.join(", ")}`,
    `see the log of pg-task: "rejected by the server" names a task that a trigger or constraint of yours refuses, "connection limit of the server reached" is why those wait${triggerHint}; if it says "due tasks do not start although sessions are free", ${bug}`,
  );
}

/** At most one for each group: its first due task. If `previous` is given, only tasks that are also in it. */
async function readStartable(
  opened: OpenTable,
  previous: readonly FirstDueTask[] | null,
): Promise<readonly FirstDueTask[]> {
  const { client, table } = opened;
  const due = await readFirstDueTasks(client, table, maxTasks);
  const same = due.filter(({ id }) => previous === null || previous.some((each) => each.id === id));
  if (same.length === 0) return same;
  const { running, idle } = await readSessions(client, table);
  if (running > 0 && idle === 0 && (await readSessionRefusal(client, table)) === null) return [];
  const startable: FirstDueTask[] = [];
  for (const task of same) {
    const reasons = await readReasons(opened, task.id, { localTimes: false });
    if (reasons?.every(({ code }) => code === "due" || code === "no-session") === true) startable.push(task);
  }
  return startable;
}

const maxGroups = 100;

export interface FirstDueTask {
  readonly id: string;
  readonly group: string;
}

/** Unless its row or a pause keeps it from starting. In the order of the planned times, out of at most 100 groups. */
export async function readFirstDueTasks(client: Client, table: TaskTable, limit: number): Promise<FirstDueTask[]> {
  const blockers = startBlockers(table, { running: "NULL", keyRuns: "NULL", quietMs: "NULL" });
  const { rows } = await client.query<FirstDueTask>(
    `WITH ${groupHeads(table, { columns: "d.*", after: "-2147483649" })}
     SELECT t.id::text AS id, t."group"::text AS "group" FROM (SELECT * FROM head LIMIT ${maxGroups}) AS t
     WHERE cardinality(${blockers}) = 0 ORDER BY t.plan, t.id LIMIT $1`,
    [limit],
  );
  return rows;
}
