import type { ExplainedConfiguration } from "../../shared/config/loadConfiguration.js";
import type { Entry } from "../../shared/config/types.js";
import { defaultParameters } from "../../shared/config/parameterValues.js";
import { PgTaskError } from "../../shared/errors.js";
import { makeReport, parameterValues, parametersText, reportText } from "../check/report.js";
import {
  asPgTaskError,
  inspectControl,
  inspectEntry,
  notInspected,
  type ControlFindings,
  type EntryFindings,
} from "../check/server.js";
import { explainHere } from "../support/explainServerFailure.js";

export interface CheckOptions {
  /** As `--config` gives it. */
  readonly config?: string | undefined;
  /** JSON instead of text. */
  readonly json?: boolean | undefined;
}

/** What the command sees of its surroundings. */
export interface CheckSurroundings {
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
  readonly write: (text: string) => void;
}

/** Entries are looked at so many at a time: a new connection each. */
const entriesAtOnce = 10;

/**
 * Validates the configuration, prints what it means, and asks each entry's server what is there
 * and what would be created. Changes nothing.
 *
 * Resolves to the exit code: 0; 3 when a server is not reached or refuses; 4 when something is
 * missing that may not be created, or the server is too old.
 *
 * @throws PgTaskError of the family CONFIG when the configuration is not valid.
 */
export async function check(
  options: CheckOptions,
  surroundings: CheckSurroundings = processSurroundings(),
): Promise<number> {
  const { cwd, env, write } = surroundings;
  const warnings = new Set<string>();
  const explained = await explainHere({
    file: options.config,
    cwd,
    env,
    warn: (message) => warnings.add(message),
  });
  if (explained === null) {
    write(nothingText(options.json === true));
    return 0;
  }
  const { configuration } = explained;
  const control = await inspectControl(configuration.control, configuration.parameters).catch(
    asPgTaskError,
  );
  const inspected = await inspectEntries(explained, control);
  const report = makeReport(explained, control, inspected, [...warnings]);
  write(options.json === true ? `${JSON.stringify(report, null, 2)}\n` : reportText(report));
  return report.exitCode;
}

function processSurroundings(): CheckSurroundings {
  return {
    cwd: process.cwd(),
    env: process.env,
    write: (text) => process.stdout.write(text),
  };
}

/** No file and no variables: what `start` does then. */
function nothingText(json: boolean): string {
  const parameters = parameterValues(defaultParameters(), {});
  const configuration = "no file, no DATABASE_URL, no PG* variables";
  const control = "the embedded PostgreSQL, which start starts";
  if (json) {
    const report = {
      file: null,
      control: { from: control },
      parameters,
      entries: [],
      warnings: [],
      exitCode: 0,
    };
    return `${JSON.stringify(report, null, 2)}\n`;
  }
  const lines = [
    `configuration  ${configuration}`,
    `control        ${control}`,
    "",
    ...parametersText(parameters),
  ];
  return `${lines.join("\n")}\n`;
}

async function inspectEntries(
  { configuration }: ExplainedConfiguration,
  control: ControlFindings | PgTaskError,
): Promise<EntryFindings[]> {
  const { entries, control: target } = configuration;
  const inspectOne = async (entry: Entry): Promise<EntryFindings> => {
    if (entry.elsewhere) return await inspectEntry(entry, null);
    if (control instanceof PgTaskError) return notInspected(entry);
    return await inspectEntry(entry, { target, findings: control });
  };
  const inspected: EntryFindings[] = [];
  for (let start = 0; start < entries.length; start += entriesAtOnce) {
    const batch = entries.slice(start, start + entriesAtOnce);
    inspected.push(...(await Promise.all(batch.map(inspectOne))));
  }
  return inspected;
}
