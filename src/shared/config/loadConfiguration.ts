import { PgTaskError } from "../errors.js";
import { ConnectionStringError } from "../postgres/errors.js";
import {
  resolveTarget,
  sharedContext,
  type ConnectionContext,
  parseTargetUrl,
} from "../postgres/target/resolveTarget.js";
import { emptyDocument, invalidConfiguration, type ConfigDocument } from "./configDocument.js";
import { EntryProblems, ownEntry, resolveEntry, type EntryContext } from "./resolveEntry.js";
import { entriesNamed } from "./entryNames.js";
import { checkTokens, resolveHttpSecrets, withoutHttpSecrets } from "./httpSecrets.js";
import { listenAnywhere } from "./listenAddress.js";
import { formatPath } from "./describeIssues.js";
import { findSource, type ConfigSource, type SourceOptions } from "./findSource.js";
import type { Configuration, Entry } from "./types.js";
import type { FileParameters } from "./parameterTable.js";
import { shareServer, type ConnectionTarget } from "../postgres/target/target.js";
import { noOptions, type GivenOptions } from "../postgres/connectionString/parse.js";
import { aliasProblems, defaultParameters, givenParameters } from "./parameters.js";

export interface LoadOptions extends SourceOptions {
  /** A program has called `start`: messages name its options instead of those of the command. */
  readonly byProgram?: boolean | undefined;
  /** URL of the embedded server: connection variables are then ignored, and a URL in the file is an error. */
  readonly control?: string | undefined;
  readonly warn?: (message: string) => void;
  /**
   * The control connection that this process already uses. It stays in use even if the file now names another server.
   */
  readonly inUse?: ControlConnection;
  /**
   * Secrets in environment variables are needed only once they are used: an entry whose variable is not set has
   * `missingPassword`, and the tokens are neither read nor checked.
   */
  readonly lazySecrets?: boolean | undefined;
  readonly defaults?: Partial<FileParameters> | undefined;
}

/** `given` holds only the values that its source states. */
export interface ControlConnection {
  readonly given: GivenOptions;
  readonly control: ConnectionTarget;
}

type ControlSource = "the embedded server" | "url in the file" | "DATABASE_URL" | "PG* variables" | "libpq's defaults";

export interface ExplainedConfiguration {
  readonly configuration: Configuration;
  readonly controlFrom: ControlSource;
  readonly controlGiven: GivenOptions;
  /** Whether the file itself holds the password of a connection. */
  readonly holdsPassword: boolean;
  readonly controlMoved: boolean;
  readonly given: Partial<FileParameters>;
  /** By full name or by short key. */
  readonly entriesGiven: readonly Readonly<Partial<FileParameters>>[];
}

/**
 * No error message contains a password.
 *
 * @throws PgTaskError CONFIG_FILE_UNREADABLE; CONFIG_SYNTAX; CONFIG_INVALID with one line for each problem;
 * CONFIG_CONFLICT if the file gives a URL although `control` is set
 */
export async function loadConfiguration(options: LoadOptions): Promise<Configuration> {
  return (await explainConfiguration(options)).configuration;
}

export async function explainConfiguration(options: LoadOptions): Promise<ExplainedConfiguration> {
  const { file, environment } = await findSource(options);
  const document = await readGiven(file, options);
  const aliases = aliasProblems(document.values);
  if (aliases.length > 0) throw invalidConfiguration(file, aliases);

  const { lazySecrets = false } = options;
  const written = givenParameters(document.values);
  const given = lazySecrets ? withoutHttpSecrets(written, file) : resolveHttpSecrets(written, file, options.env);
  const parameters = {
    ...defaultParameters(),
    ...options.defaults,
    ...(options.control === undefined ? {} : embeddedParameters),
    ...given,
  };
  if (!lazySecrets) checkTokens(parameters, file);
  const context = sharedContext({
    env: options.env,
    warn: once(options.warn ?? ((message) => process.emitWarning(message))),
  });
  const { from, url } = chooseControl(options, document.values.url, { file, environment });
  const named = await resolveControl(url, { named: from === "url in the file" ? "url" : from, file, context });
  const { inUse = named } = options;
  // The role does not matter, because the supervisor's lock is held per database.
  const controlMoved = !shareServer(named.control, inUse.control) || named.control.database !== inUse.control.database;
  const inForce = controlMoved ? inUse : named;
  const { control } = inForce;
  const entries =
    document.entries.length === 0
      ? [ownEntry(control, parameters)]
      : await resolveEntries(document, file, {
          ...context,
          controlGiven: inForce.given,
          control,
          parameters,
          createRolesAndDatabases: document.isArray || parameters["pg_task.create"],
          lazySecrets,
        });
  requireDefaultEntry(parameters, entries, file);
  checkShares(entries, file);
  return {
    configuration: { file, control, parameters, entries },
    controlFrom: from,
    controlGiven: inForce.given,
    holdsPassword: file !== null && holdsPassword(document),
    controlMoved,
    given,
    entriesGiven: entries.map((entry, index) => ({
      ...givenParameters(document.entries[index] ?? {}),
      ...Object.fromEntries(Object.entries(entry.fixed).map(([name, value]) => [`pg_task.${name}`, value])),
    })),
  };
}

function holdsPassword({ values, entries }: ConfigDocument): boolean {
  const urls = [values.url, ...entries.map(({ url }) => url)];
  return (
    entries.some(({ password }) => typeof password === "string") ||
    urls.some((url) => url !== undefined && parseTargetUrl(url).has("password"))
  );
}

async function readGiven(file: string | null, { content }: LoadOptions): Promise<ConfigDocument> {
  if (file === null && content === undefined) return emptyDocument;
  // Loading the schemas takes as long as a third of a short command, so it is done only if there is something to check.
  const { readDocument, toDocument } = await import("./readConfigFile.js");
  return file === null ? toDocument(content, "config") : await readDocument(file);
}

/** The page is on by default with the embedded server. */
const embeddedParameters: Partial<FileParameters> = { "pg_http.listen": listenAnywhere };

function requireDefaultEntry(parameters: FileParameters, entries: readonly Entry[], file: string | null): void {
  const name = parameters["pg_task.default"];
  const count = name === "" ? 1 : entriesNamed(entries, name).length;
  if (count === 1) return;
  throw invalidConfiguration(file, [
    `pg_task.default: expected the number, key, database or table of one entry, got ${JSON.stringify(name)}, which names ${count === 0 ? "none" : count}`,
  ]);
}

function checkShares(entries: readonly Entry[], file: string | null): void {
  const problems = entries.flatMap(({ key, parameters }) => {
    const { "pg_task.share": share, "pg_task.weights": weights } = parameters;
    // The sessions of roles are not divided by weight yet.
    if (share === "role") return `pg_task.share: "role" is not possible yet, in the entry ${key}`;
    const areUnused = share === "" && Object.keys(weights).length > 0;
    return areUnused ? `pg_task.weights: expected pg_task.share, too, for the entry ${key}` : [];
  });
  if (problems.length > 0) throw invalidConfiguration(file, problems);
}

function chooseControl(
  { control, env, byProgram }: LoadOptions,
  inFile: string | undefined,
  { file, environment }: Pick<ConfigSource, "file" | "environment">,
): { readonly from: ControlSource; readonly url: string | undefined } {
  if (control === undefined) {
    if (inFile !== undefined) return { from: "url in the file", url: inFile };
    return {
      from: environment ?? "libpq's defaults",
      url: environment === "DATABASE_URL" ? env[environment] : undefined,
    };
  }
  if (inFile === undefined) return { from: "the embedded server", url: control };
  throw new PgTaskError(
    "CONFIG_CONFLICT",
    byProgram === true
      ? `${file ?? "config"}: "url" names a server, and the option embedded starts another one: remove one of the two`
      : `${file}: "url" names a server, and --embedded, which npm start passes, starts another one: run npx pg-task start to use the server in "url", or remove "url" to use the embedded one`,
  );
}

async function resolveControl(
  url: string | undefined,
  {
    named,
    file,
    context,
  }: { readonly named: string; readonly file: string | null; readonly context: ConnectionContext },
): Promise<ControlConnection> {
  let given: GivenOptions = noOptions;
  try {
    given = url === undefined ? noOptions : parseTargetUrl(url);
  } catch (error) {
    if (!(error instanceof ConnectionStringError)) throw error;
    throw invalidConfiguration(named === "url" ? file : null, [`${named}: ${error.message}`]);
  }
  try {
    return { given, control: await resolveTarget(given, context) };
  } catch (error) {
    if (!(error instanceof ConnectionStringError)) throw error;
    throw invalidConfiguration(null, [error.message]);
  }
}

async function resolveEntries(
  { entries, entriesPath }: ConfigDocument,
  file: string | null,
  context: EntryContext,
): Promise<Entry[]> {
  const resolved: Entry[] = [];
  const problems: string[] = [];
  const seen = new Map<string, string>();
  for (const [index, raw] of entries.entries()) {
    const path = formatPath([...entriesPath, index]);
    try {
      const entry = await resolveEntry(raw, context);
      const duplicate = seen.get(entry.key);
      if (duplicate !== undefined) {
        problems.push(
          `${path}: expected each task table once, got ${entry.key} as in ${duplicate}: remove one of the two, or give it another "schema" or "table"`,
        );
      }
      seen.set(entry.key, path);
      const { missingPassword } = entry;
      resolved.push(
        missingPassword === undefined
          ? entry
          : { ...entry, missingPassword: invalidConfiguration(file, [`${path}${missingPassword}`]).message },
      );
    } catch (error) {
      if (!(error instanceof EntryProblems)) throw error;
      problems.push(...error.problems.map((problem) => `${path}${problem}`));
    }
  }
  if (problems.length > 0) throw invalidConfiguration(file, problems);
  return resolved;
}

function once(warn: (message: string) => void): (message: string) => void {
  const reported = new Set<string>();
  return (message) => {
    if (reported.has(message)) return;
    reported.add(message);
    warn(message);
  };
}
