import { PgTaskError } from "../errors.js";
import { resolveTarget, type ConnectionContext } from "../postgres/target/resolveTarget.js";
import { emptyDocument, invalid, readDocument, type Document } from "./readConfigFile.js";
import { EntryProblems, ownEntry, resolveEntry, type EntryContext } from "./resolveEntry.js";
import { isLoopback, listenAnywhere, parseListen } from "./listenAddress.js";
import { pathText } from "./describeIssues.js";
import { secretText } from "./secretValue.js";
import { findSource, type SourceOptions } from "./findSource.js";
import type { Configuration, ConnectionTarget, Entry, FileParameters } from "./types.js";
import {
  parseConnectionUrl,
  PartProblem,
  type ConnectionParts,
} from "../postgres/target/parseUrl.js";
import { aliasProblems, defaultParameters, givenParameters } from "./parameterValues.js";

export interface LoadOptions extends SourceOptions {
  /** The embedded server's url, which stands above the environment and excludes one in the file. */
  readonly control?: string | undefined;
  /** Gets told what was passed over, such as a password file others may read. */
  readonly warn?: (message: string) => void;
  /** The control connection in use: entries stay on its server although the file now names another. */
  readonly inUse?: ControlConnection;
}

/** The control connection, and what its source itself says of it. */
export interface ControlConnection {
  readonly parts: ConnectionParts;
  readonly control: ConnectionTarget;
}

/** Where the control connection is from. */
export type ControlSource =
  | "the embedded server"
  | "url in the file"
  | "DATABASE_URL"
  | "PG* variables"
  | "libpq's defaults";

/** A configuration and where its values are from. */
export interface ExplainedConfiguration {
  readonly configuration: Configuration;
  readonly controlFrom: ControlSource;
  readonly controlParts: ConnectionParts;
  /** Whether the file names another place for the control connection than the one in use. */
  readonly controlMoved: boolean;
  /** The parameters the file itself gives. */
  readonly given: Partial<FileParameters>;
  /** For each entry, the parameters it carries itself, short names included. */
  readonly entriesGiven: readonly Readonly<Partial<FileParameters>>[];
}

/**
 * Reads and resolves the whole configuration.
 *
 * @throws PgTaskError CONFIG_FILE_UNREADABLE, CONFIG_SYNTAX, or CONFIG_INVALID with one line for
 * each thing that is wrong; CONFIG_CONFLICT for a url in the file beside `control`; never with a
 * password in it.
 */
export async function loadConfiguration(options: LoadOptions): Promise<Configuration> {
  return (await explainConfiguration(options)).configuration;
}

/** As loadConfiguration, and says where the values are from. */
export async function explainConfiguration(options: LoadOptions): Promise<ExplainedConfiguration> {
  const { file } = await findSource(options);
  const document = file === null ? emptyDocument : await readDocument(file);
  const aliases = aliasProblems(document.values);
  if (aliases.length > 0) throw invalid(file, aliases);

  const given = resolveSecrets(givenParameters(document.values), file, options.env);
  const parameters = {
    ...defaultParameters(),
    ...(options.control === undefined ? {} : embeddedParameters),
    ...given,
  };
  refuseOpenDoor(parameters, file);
  const context = { env: options.env, warn: once(options.warn ?? warnOnStderr) };
  const chosen = await chooseControl(options, document, file);
  const named = await resolveControl(chosen, file, context);
  const { inUse = named } = options;
  const controlMoved = !samePlace(named.control, inUse.control);
  const { parts, control } = controlMoved ? inUse : named;
  const entries =
    document.entries.length === 0
      ? [ownEntry(control, parameters)]
      : await resolveEntries(document, file, {
          ...context,
          controlParts: parts,
          control,
          parameters,
        });
  return {
    configuration: { file, control, parameters, entries },
    controlFrom: chosen.from,
    controlParts: parts,
    controlMoved,
    given,
    entriesGiven: entries.map((entry, index) => ({
      ...givenParameters(document.entries[index] ?? {}),
      ...shortNames(entry),
    })),
  };
}

/** Who starts the embedded server wants to see something. */
const embeddedParameters: Partial<FileParameters> = { "pg_http.listen": listenAnywhere };

/** The token may stand in an environment variable. */
function resolveSecrets(
  given: Partial<FileParameters>,
  file: string | null,
  env: NodeJS.ProcessEnv,
): Partial<FileParameters> {
  const token: unknown = given["pg_http.token"];
  if (token === undefined) return given;
  try {
    return { ...given, "pg_http.token": secretText(token, env, "token") };
  } catch (error) {
    if (!(error instanceof PartProblem)) throw error;
    throw invalid(file, [`pg_http.token: ${error.message}`]);
  }
}

/** Who may reach the page from elsewhere has to show that they may see the tasks. */
function refuseOpenDoor(parameters: FileParameters, file: string | null): void {
  const { "pg_http.listen": listen, "pg_http.token": token } = parameters;
  const address = parseListen(listen);
  if (address === null || isLoopback(address.host) || token !== "") return;
  throw invalid(file, [
    `pg_http.token: expected one, since pg_http.listen is ${JSON.stringify(listen)}, which others than this machine can reach, got none: give one, or listen on 127.0.0.1`,
  ]);
}

function shortNames({ fixed }: Entry): Partial<FileParameters> {
  return Object.fromEntries(
    Object.entries(fixed).map(([name, value]) => [`pg_task.${name}`, value]),
  );
}

interface ChosenControl {
  readonly from: ControlSource;
  readonly url: string | undefined;
}

async function chooseControl(
  options: LoadOptions,
  document: Document,
  file: string | null,
): Promise<ChosenControl> {
  const { control, env } = options;
  if (control !== undefined) {
    if (document.values.url === undefined) return { from: "the embedded server", url: control };
    throw new PgTaskError(
      "CONFIG_CONFLICT",
      `${file}: expected no "url" beside --embedded, which starts a server of its own, got one: drop one of the two`,
    );
  }
  if (document.values.url !== undefined)
    return { from: "url in the file", url: document.values.url };
  const { environment } = await findSource(options);
  if (environment === "DATABASE_URL") return { from: environment, url: env["DATABASE_URL"] };
  return { from: environment ?? "libpq's defaults", url: undefined };
}

async function resolveControl(
  { from, url }: ChosenControl,
  file: string | null,
  context: ConnectionContext,
): Promise<ControlConnection> {
  let parts: ConnectionParts = {};
  const named = from === "url in the file" ? "url" : from;
  try {
    parts = url === undefined ? {} : parseConnectionUrl(url);
  } catch (error) {
    if (!(error instanceof PartProblem)) throw error;
    throw invalid(named === "url" ? file : null, [`${named}: ${error.message}`]);
  }
  try {
    return { parts, control: await resolveTarget(parts, context) };
  } catch (error) {
    if (!(error instanceof PartProblem)) throw error;
    throw invalid(null, [error.message]);
  }
}

/** The supervisor's lock lives in a database: another role or password there still finds it. */
function samePlace(a: ConnectionTarget, b: ConnectionTarget): boolean {
  return a.host === b.host && a.port === b.port && a.database === b.database;
}

async function resolveEntries(
  { entries, entriesPath }: Document,
  file: string | null,
  context: EntryContext,
): Promise<Entry[]> {
  const resolved: Entry[] = [];
  const problems: string[] = [];
  const seen = new Map<string, string>();
  for (const [index, raw] of entries.entries()) {
    const path = pathText([...entriesPath, index]);
    try {
      const entry = await resolveEntry(raw, context);
      const twin = seen.get(entry.key);
      if (twin !== undefined) {
        problems.push(`${path}: expected each task table once, got ${entry.key} as in ${twin}`);
      }
      seen.set(entry.key, path);
      resolved.push(entry);
    } catch (error) {
      if (!(error instanceof EntryProblems)) throw error;
      problems.push(...error.problems.map((problem) => `${path}${problem}`));
    }
  }
  if (problems.length > 0) throw invalid(file, problems);
  return resolved;
}

function once(warn: (message: string) => void): (message: string) => void {
  const told = new Set<string>();
  return (message) => {
    if (told.has(message)) return;
    told.add(message);
    warn(message);
  };
}

function warnOnStderr(message: string): void {
  process.emitWarning(message);
}
