import { stat } from "node:fs/promises";
import { maskParameters, maskTarget } from "../../shared/config/maskSecrets.js";
import type { ExplainedConfiguration } from "../../shared/config/loadConfiguration.js";
import { fileParameters } from "../../shared/config/parameters.js";
import type { FileParameters } from "../../shared/config/parameterTable.js";
import type { Entry } from "../../shared/config/types.js";
import { PgTaskError, toReport } from "../../shared/errors.js";
import { firstLine } from "../../shared/firstLine.js";
import { describeTarget } from "../../shared/postgres/target/target.js";
import { toPgTaskError } from "../check/roleAndDatabase.js";
import {
  inspectControl,
  inspectEntry,
  notInspected,
  type ControlFindings,
  type EntryFindings,
} from "../check/server.js";
import { levelOf, type Finding, type ObjectState } from "../inspection.js";
import { noServerError, resolveConfiguration } from "../support/configuration.js";
import { shellWord } from "../support/pastedCommands.js";
import type { Terminal } from "../terminal/terminal.js";

interface CheckOptions {
  readonly config?: string;
  readonly json?: true;
  readonly all?: true;
}

const concurrentEntries = 10;

/**
 * @returns 0; 3 if a server is unreachable or refuses the connection; 4 if an object is missing and pg-task is not
 * allowed to create it, or if the server is too old; 2 if the server refuses a value
 */
export async function check(terminal: Terminal, options: CheckOptions): Promise<number> {
  const { cwd, env } = terminal;
  const warnings = new Set<string>();
  const explained = await resolveConfiguration({
    file: options.config,
    cwd,
    env,
    warn: (message) => warnings.add(message),
  });
  if (explained === null) throw noServerError({ cwd, env });
  const { configuration } = explained;
  const exposed = await exposedPassword(explained);
  if (exposed !== null) warnings.add(exposed);
  const control = await inspectControl(configuration.control, configuration.parameters).catch(toPgTaskError);
  const inspected = await inspectEntries(explained, control);
  const report = buildReport(explained, control, inspected, [...warnings]);
  terminal.write(
    options.json === true ? `${JSON.stringify(report, null, 2)}\n` : formatReport(report, options.all === true),
  );
  return report.exitCode;
}

async function exposedPassword({ configuration, holdsPassword }: ExplainedConfiguration): Promise<string | null> {
  const { file } = configuration;
  if (file === null || !holdsPassword || process.platform === "win32") return null;
  const stats = await stat(file).catch(() => null);
  if (stats === null || (stats.mode & othersCanRead) === 0) return null;
  return `${file} holds a password, and every user of this machine can read it: chmod 600 ${shellWord(file)}, or keep the password in a password file or in an environment variable ({ "env": "NAME" })`;
}

const othersCanRead = 0o004;

async function inspectEntries(
  { configuration }: ExplainedConfiguration,
  control: ControlFindings | PgTaskError,
): Promise<EntryFindings[]> {
  const { entries, control: target, parameters } = configuration;
  const zone = parameters["pg_task.zone"];
  const inspectOne = async (entry: Entry): Promise<EntryFindings> => {
    if (entry.elsewhere) return await inspectEntry(entry, null, zone);
    if (control instanceof PgTaskError) return notInspected(entry);
    return await inspectEntry(entry, { target, findings: control }, zone);
  };
  const inspected: EntryFindings[] = [];
  for (let start = 0; start < entries.length; start += concurrentEntries) {
    const batch = entries.slice(start, start + concurrentEntries);
    inspected.push(...(await Promise.all(batch.map(inspectOne))));
  }
  return inspected;
}

/** The result of the command. Contains no secrets. */
export type CheckReport = ReturnType<typeof buildReport>;

interface ParameterReport {
  readonly value: unknown;
  /** `server`: a setting of the control database, of the control connection's role, or of the server. */
  readonly from: "file" | "default" | "server";
}

/** Whether an object that an entry needs exists. */
interface ObjectReport {
  /** `role`, `database`, `schema`, `type` or `table`. */
  readonly what: string;
  readonly name: string;
  readonly state: ObjectState;
  readonly why?: string;
}

type EntryReport = CheckReport["entries"][number];

function buildReport(
  explained: ExplainedConfiguration,
  control: ControlFindings | PgTaskError,
  inspected: readonly EntryFindings[],
  warnings: readonly string[],
) {
  const { configuration, given } = explained;
  const error = control instanceof Error ? control : null;
  const found = control instanceof Error ? null : control;
  const target = maskTarget(configuration.control);
  return {
    file: configuration.file,
    control: {
      from: explained.controlFrom,
      url: describeTarget(target),
      password: target.password ?? null,
      sslmode: target.sslmode,
      version: found?.version ?? null,
      error: error === null ? null : toReport(error),
    },
    parameters: reportParameters(configuration.parameters, given, found?.settings),
    entries: inspected.map(({ entry, findings, paused, location, settings, error: failure }, index) => {
      const shown = maskTarget(entry.target);
      return {
        key: entry.key,
        url: describeTarget(shown),
        user: shown.user,
        database: shown.database,
        schema: location?.schema ?? entry.schema,
        table: location?.table ?? entry.table,
        create: entry.create,
        users: entry.users,
        password: shown.password ?? null,
        parameters: explained.entriesGiven[index] ?? {},
        settings,
        objects: findings.flatMap(toObjectReport),
        paused,
        error: failure === null ? null : toReport(failure),
      };
    }),
    warnings: [...warnings, ...(found?.warnings ?? []), ...inspected.flatMap((entry) => entry.warnings)],
    exitCode: reportExitCode(error, inspected),
  };
}

function reportParameters(
  all: FileParameters,
  given: Partial<FileParameters>,
  fromServer: Partial<FileParameters> = {},
): Readonly<Record<string, ParameterReport>> {
  const values = maskParameters(all);
  return Object.fromEntries(
    fileParameters.map(({ name }) => {
      if (fromServer[name] !== undefined) return [name, { value: fromServer[name], from: "server" }];
      return [name, { value: values[name], from: given[name] === undefined ? "default" : "file" }];
    }),
  );
}

/** That of the control connection's failure, else of the first entry that failed, else 4 if an object is lacking. */
function reportExitCode(control: PgTaskError | null, inspected: readonly EntryFindings[]): number {
  if (control !== null) return control.exitCode;
  const failed = inspected.find(({ error }) => error !== null)?.error;
  if (failed) return failed.exitCode;
  return inspected.some(({ findings }) => findings.some(({ level }) => level === "fail")) ? 4 : 0;
}

/** Formats the report as text: first errors and warnings, then what the configuration sets, then the entries. */
function formatReport(report: CheckReport, all: boolean): string {
  const { control } = report;
  const version = control.version === null ? "" : `, PostgreSQL ${control.version}`;
  const problems = [
    ...listErrors(report).map((error) => `error          ${error}`),
    ...report.warnings.map((warning) => `warning        ${warning}`),
  ];
  const lines = [
    ...problems,
    ...(problems.length === 0 ? [] : [""]),
    `configuration  ${report.file ?? "no file"}`,
    `control        ${control.url}${formatPassword(control.password)} sslmode ${control.sslmode} (${control.from})${version}`,
    "",
    ...formatParameters(report.parameters, (from) => from !== "default", "parameters"),
    "entries",
    ...report.entries.flatMap((entry) => (isUnknown(entry) ? [formatUnknownEntry(entry)] : formatEntry(entry))),
    "",
    ...(all
      ? formatParameters(report.parameters, (from) => from === "default", "parameters with their defaults")
      : ["The other parameters have their defaults, which --all lists."]),
  ];
  return `${lines.join("\n").trimEnd()}\n`;
}

/** Whether nothing is known of an entry, because the control connection failed. */
const isUnknown = ({ objects }: EntryReport): boolean =>
  objects.length > 0 && objects.every(({ state }) => state === "unknown");

const toObjectReport = ({ name: what, text, object }: Finding): ObjectReport[] =>
  object === undefined ? [] : [{ what, ...object, ...(text === "" ? {} : { why: text }) }];

const isLacking = ({ state }: ObjectReport): boolean => levelOf[state] === "fail";

/** Returns the first line of every reason for an exit code that is not 0. */
function listErrors({ control, entries }: CheckReport): string[] {
  const errors = entries.flatMap((entry) => {
    const where = `entry ${entry.database} ${entry.schema}.${entry.table}`;
    // Objects that lack for the same reason are named together.
    const lacking = new Map<string, string[]>();
    for (const { what, name, state, why } of entry.objects.filter(isLacking)) {
      const reason = why === undefined ? state : `${state}: ${why}`;
      lacking.set(reason, [...(lacking.get(reason) ?? []), `${what} ${name}`]);
    }
    const objects = [...lacking].map(([reason, names]) => `${names.join(" and ")} ${reason}`);
    const reasons = entry.error === null ? objects : [entry.error.message, ...objects];
    return reasons.map((reason) => escapeControlCharacters(`${where}: ${firstLine(reason)}`));
  });
  return control.error === null ? errors : [`control connection: ${control.error.message}`, ...errors];
}

function formatParameters(
  values: Readonly<Record<string, ParameterReport>>,
  isListed: (from: ParameterReport["from"]) => boolean,
  title: string,
): string[] {
  const rows = fileParameters.flatMap(({ name, unit }) => {
    const { value, from } = values[name] ?? { value: null, from: "default" };
    return isListed(from) ? [[name, `${JSON.stringify(value)}${unit === undefined ? "" : ` ${unit}`}`, from]] : [];
  });
  return rows.length === 0 ? [] : [title, ...alignColumns(rows), ""];
}

const formatUnknownEntry = ({ url, password, schema, table }: EntryReport): string =>
  `  ${url}${formatPassword(password)}  ${escapeControlCharacters(`${schema}.${table}`)}`;

function formatEntry(entry: EntryReport): string[] {
  const own = Object.entries(entry.parameters).map(([name, value]) => [name, JSON.stringify(value), "entry"]);
  const fromServer = Object.entries(entry.settings).map(([name, value]) => [name, JSON.stringify(value), "server"]);
  const objects = entry.objects.map((finding) => {
    const { what, name, state, why } = finding;
    // The first line of an error's reason is given above.
    const isGiven = why === undefined || (isLacking(finding) && !why.includes("\n"));
    return [what, escapeControlCharacters(name), isGiven ? state : `${state}: ${why}`];
  });
  // Objects that were not inspected are listed only by name.
  const inspected = new Set<string>(entry.objects.map(({ what }) => what));
  const others = [
    ["role", escapeControlCharacters(entry.user), ""],
    ["database", escapeControlCharacters(entry.database), ""],
    ["schema", escapeControlCharacters(entry.schema), ""],
    ["table", escapeControlCharacters(entry.table), ""],
  ].filter(([what]) => !inspected.has(what ?? ""));
  const described = [...objects, ...others];
  const lines = alignColumns([...described, ...own, ...fromServer]).map((line) => `  ${line}`);
  return [
    `  ${entry.url}${formatPassword(entry.password)}`,
    ...lines.slice(0, described.length),
    ...entry.paused.map((group) =>
      group === null ? "    paused: the whole table" : `    paused: group ${JSON.stringify(group)}`,
    ),
    ...lines.slice(described.length),
  ];
}

/** Escapes control characters as JSON does, so that a name fits on one line. */
const escapeControlCharacters = (name: string): string =>
  name.replaceAll(/\p{Cc}/gu, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);

const formatPassword = (masked: string | null): string => (masked === null ? "" : ` password ${masked}`);

function alignColumns(rows: readonly (readonly string[])[]): string[] {
  const widths = [0, 1].map((column) => Math.max(0, ...rows.map((row) => (row[column] ?? "").length)));
  return rows.map((row) => `  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ")}`.trimEnd());
}
