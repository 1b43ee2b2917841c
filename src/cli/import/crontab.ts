import { createHash } from "node:crypto";
import { rename, writeFile } from "node:fs/promises";
import { basename } from "node:path";
import { awaitMiddleOfMinute } from "./schedulerTables.js";
import { parsePsql, type PsqlCommand } from "./psqlCommand.js";
import { parseShellCommand } from "./shellWords.js";
import { kept, mapped, notMapped, type Source, type SourceJob, type Switch } from "./source.js";

interface Crontab {
  /** Absolute path. */
  readonly file: string;
  readonly text: string;
  /** The zone of the machine, unless the file names one. */
  readonly zone: string;
  /** Returns the SQL of a file, or null if it cannot be read. */
  readonly readSql: (file: string) => Promise<string | null>;
}

/** In front of a line that was moved, and that `--back` brings back. */
const movedMark = "#pg-task# ";

export async function readCrontab({ file, text, zone, readSql }: Crontab): Promise<Source> {
  const lines = text.split("\n");
  const jobs: SourceJob[] = [];
  const variables = new Map([["CRON_TZ", zone]]);
  const keys = new Map<string, number>();
  for (const [index, line] of lines.entries()) {
    const [, name, value = ""] = /^\s*(\w+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (name !== undefined) variables.set(name, value.replace(/^(["'])(.*)\1$/, "$2"));
    const isMoved = line.startsWith(movedMark);
    const [, schedule, command] =
      /^\s*(@\w+|(?:\S+\s+){4}\S+)\s+(.*)$/.exec(isMoved ? line.slice(movedMark.length) : line) ?? [];
    if (name !== undefined || schedule === undefined || command === undefined || schedule.startsWith("#")) continue;
    const digest = createHash("sha256").update(command).digest("hex").slice(0, 8);
    const count = (keys.get(digest) ?? 0) + 1;
    keys.set(digest, count);
    const key = `crontab ${digest}${count === 1 ? "" : ` ${count}`}`;
    const found = { key, id: String(index), name: line.replace(movedMark, ""), active: !isMoved };
    jobs.push(await toJob(found, schedule, command, variables, readSql));
  }
  return {
    jobs,
    remarks: [`if ${file} is a copy of your crontab, install it after --apply and --back: crontab ${basename(file)}`],
    awaitMoment: () => awaitMiddleOfMinute(() => Promise.resolve(new Date())),
    switchJobs: async (change, settle) => {
      const since = new Date().toISOString();
      // The new text is on the disk before anything else changes, so that a full one changes nothing.
      const next = `${file}.pg-task`;
      await writeFile(next, switchLines(lines, change));
      await settle(new Map(change.ids.map((id) => [id, since])));
      await rename(next, file);
    },
  };
}

function switchLines(lines: readonly string[], { on, ids }: Switch): string {
  const changed = new Set(ids);
  const switched = (line: string): string => {
    const bare = line.startsWith(movedMark) ? line.slice(movedMark.length) : line;
    return on ? bare : `${movedMark}${bare}`;
  };
  return lines.map((line, index) => (changed.has(String(index)) ? switched(line) : line)).join("\n");
}

async function toJob(
  found: Pick<SourceJob, "key" | "id" | "name" | "active">,
  schedule: string,
  command: string,
  variables: ReadonlyMap<string, string>,
  readSql: Crontab["readSql"],
): Promise<SourceJob> {
  const called = readCall(command);
  if (typeof called === "string") return notMapped({ ...found, database: null, owner: null }, called);
  const { psql, systemUser = null, outputs } = called;
  const owner = psql.user ?? variables.get("PGUSER") ?? systemUser;
  const database = psql.database ?? variables.get("PGDATABASE") ?? owner;
  const placed = { ...found, database, owner, host: psql.host ?? variables.get("PGHOST") };
  if (schedule.startsWith("@reboot")) return notMapped(placed, "@reboot");
  const sql = await readPieces(psql, readSql);
  if (typeof sql === "string") return notMapped(placed, sql);
  const rule = { rule: schedule, zone: variables.get("CRON_TZ") ?? "UTC" };
  return mapped(placed, { ...kept, ...rule, group: found.key, input: sql.input }, [
    ...sql.notes,
    ...outputs.map((name) => `its output is in the row instead of ${name}`),
  ]);
}

interface Call {
  readonly psql: PsqlCommand;
  /** The files of the system name the user in front of the command. */
  readonly systemUser: string | undefined;
  readonly outputs: readonly string[];
}

/** @returns why it cannot be taken over, as text */
function readCall(command: string): Call | string {
  // A percent sign that is not escaped ends the command, and the rest is its input.
  if (/(?<!\\)%/.test(command)) return "its command has an input (%)";
  const { words = [], outputs = [] } = parseShellCommand(command.replaceAll("\\%", "%")) ?? {};
  const [first = "", second = "", ...others] = words;
  const hasUser = isPsql(second) && /^[a-z_][\w-]*$/.test(first);
  if (!hasUser && !isPsql(first)) return "it does not only call psql";
  const psql = parsePsql(hasUser ? others : words.slice(1));
  return typeof psql === "string" ? psql : { psql, systemUser: hasUser ? first : undefined, outputs };
}

const isPsql = (word: string): boolean => /^(?:\/\S*\/)?psql$/.test(word);

/** @returns why they cannot be taken over, as text */
async function readPieces(
  { pieces, single }: PsqlCommand,
  readSql: Crontab["readSql"],
): Promise<{ readonly input: string; readonly notes: readonly string[] } | string> {
  const texts: string[] = [];
  for (const { kind, text } of pieces) {
    const sql = kind === "command" ? text : await readSql(text);
    if (sql === null) return `the file ${text} cannot be read here`;
    const [meta] = /^[ \t]*\\\S+/m.exec(sql) ?? [];
    if (meta !== undefined) return `psql's command ${meta.trim()}`;
    if (/\bFROM\s+STDIN\b/i.test(sql)) return "it reads its standard input";
    texts.push(sql.trim().replace(/;$/, ""));
  }
  const separate = !single && (pieces.length > 1 || pieces.some(({ kind }) => kind === "file"));
  const files = pieces
    .filter(({ kind }) => kind === "file")
    .map(({ text }) => `a later change of ${text} does not count`);
  return {
    input: texts.join(";\n"),
    notes: [...(separate ? ["its statements are one transaction here"] : []), ...files],
  };
}
