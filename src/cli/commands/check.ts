import { stat } from "node:fs/promises";
import type { ExplainedConfiguration } from "../../shared/config/loadConfiguration.js";
import type { Entry } from "../../shared/config/types.js";
import { PgTaskError } from "../../shared/errors.js";
import { buildReport, formatReport } from "../check/report.js";
import { toPgTaskError } from "../check/roleAndDatabase.js";
import {
  inspectControl,
  inspectEntry,
  notInspected,
  type ControlFindings,
  type EntryFindings,
} from "../check/server.js";
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
 * Validates the configuration and prints its meaning. Also reads from each entry's server which objects exist and which
 * would be created. Changes nothing.
 *
 * @returns the exit code: 0; 3 if a server is unreachable or refuses the connection; 4 if an object is missing and
 * pg-task is not allowed to create it, or if the server is too old; 2 if the server refuses a value
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
