import { omitUndefined } from "../omitUndefined.js";
import { resolveTarget, type ConnectionContext } from "../postgres/target/resolveTarget.js";
import type { RawEntry } from "./fileSchema.js";
import type { ConnectionTarget, Entry, FileParameters } from "./types.js";
import { secretText } from "./secretValue.js";
import {
  parseConnectionUrl,
  PartProblem,
  type ConnectionParts,
} from "../postgres/target/parseUrl.js";
import { aliasProblems, givenParameters } from "./parameterValues.js";

/** What entries fall back on. */
export interface EntryContext extends ConnectionContext {
  /** What the control connection's own source says, without the environment. */
  readonly controlParts: ConnectionParts;
  readonly control: ConnectionTarget;
  readonly parameters: FileParameters;
}

/** Everything that is wrong with one entry; the messages carry the path below it. */
export class EntryProblems extends Error {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join("\n"));
    this.problems = problems;
  }
}

/**
 * What an entry means.
 *
 * @throws EntryProblems
 */
export async function resolveEntry(raw: RawEntry, context: EntryContext): Promise<Entry> {
  const problems = [...aliasProblems(raw).map((text) => `: ${text}`), ...twiceGiven(raw)];
  const url = attempt(problems, ".url", () =>
    raw.url === undefined ? {} : parseConnectionUrl(raw.url),
  );
  const password = attempt(problems, ".password", () => ownPassword(raw, context.env));
  if (url !== undefined) problems.push(...contradictions(raw, url));
  if (problems.length > 0 || url === undefined) throw new EntryProblems(problems);

  const own = password ?? url.password;
  const { database, user } = nameBoth(raw, url, context.parameters);
  const sameUser = user === context.control.user && raw.url === undefined;
  const inherited = sameUser ? context.controlParts.password : undefined;
  const server = raw.url === undefined ? context.controlParts : url;
  const target = await resolveOwn(
    omitUndefined({ ...server, database, user, password: own ?? inherited }),
    context,
  );
  return makeEntry(raw, target, own !== undefined, context.parameters);
}

/** The one entry of a configuration that names none: the control connection's own. */
export function ownEntry(control: ConnectionTarget, parameters: FileParameters): Entry {
  return makeEntry({}, control, false, parameters);
}

function makeEntry(
  raw: RawEntry,
  target: ConnectionTarget,
  hasOwnPassword: boolean,
  base: FileParameters,
): Entry {
  const own = givenParameters(raw);
  const given = { ...base, ...own };
  const ownPlace = omitUndefined({
    schema: raw.schema ?? own["pg_task.schema"],
    table: raw.table ?? own["pg_task.table"],
  });
  const schema = ownPlace.schema ?? base["pg_task.schema"];
  const table = ownPlace.table ?? base["pg_task.table"];
  const { sleep, reset, run } = raw;
  const parameters = {
    ...given,
    // No manager's business: it stays where it is needed.
    "pg_http.token": "",
    "pg_task.schema": schema,
    "pg_task.table": table,
    ...omitUndefined({ "pg_task.sleep": sleep, "pg_task.reset": reset, "pg_task.run": run }),
  };
  return {
    key: entryKey(target, schema, table),
    target,
    ownPassword: hasOwnPassword,
    elsewhere: raw.url !== undefined,
    schema,
    table,
    create: raw.create ?? true,
    parameters,
    fixed: omitUndefined({ sleep, reset, run, ...ownPlace }),
  };
}

/** `host:port/database/schema.table`: who manages the same thing has the same key. */
export function entryKey(target: ConnectionTarget, schema: string, table: string): string {
  const { host, port } = target;
  const server = host.startsWith("/") ? host : host.toLowerCase();
  const bracketed = server.includes(":") ? `[${server}]` : server;
  const [database, inSchema, name] = [target.database, schema, table].map(keyPart);
  return `${bracketed}:${port}/${database}/${inSchema}.${name}`;
}

/** Dots and slashes inside a name must not read as those between names. */
function keyPart(name: string): string {
  return encodeURIComponent(name).replaceAll(".", "%2E");
}

/** `user` left out is `data`, `data` left out is `user`, both left out are the parameters. */
function nameBoth(
  raw: RawEntry,
  url: ConnectionParts,
  parameters: FileParameters,
): { database: string; user: string } {
  const data = raw.data ?? url.database;
  const user = raw.user ?? url.user;
  return {
    database: data ?? user ?? parameters["pg_task.data"],
    user: user ?? data ?? parameters["pg_task.user"],
  };
}

function ownPassword(raw: RawEntry, env: NodeJS.ProcessEnv): string | undefined {
  return raw.password === undefined ? undefined : secretText(raw.password, env, "password");
}

/** Keys that mean one thing under two names. */
function twiceGiven(raw: RawEntry): string[] {
  return ["schema", "table", "sleep", "reset", "run"].flatMap((name) =>
    raw[name] !== undefined && raw[`pg_task.${name}`] !== undefined
      ? [`: expected one of "${name}" and "pg_task.${name}" in one entry, got both`]
      : [],
  );
}

/** What the entry and its url say differently. */
function contradictions(raw: RawEntry, url: ConnectionParts): string[] {
  const twice = raw.password !== undefined && url.password !== undefined;
  return [
    ...contradiction("data", raw.data, url.database),
    ...contradiction("user", raw.user, url.user),
    ...(twice ? [".password: expected no password beside the one in the entry's url"] : []),
  ];
}

function contradiction(
  key: string,
  given: string | undefined,
  inUrl: string | undefined,
): string[] {
  if (given === undefined || inUrl === undefined || given === inUrl) return [];
  return [
    `.${key}: expected the same as in the entry's url, ${JSON.stringify(inUrl)}, got ${JSON.stringify(given)}`,
  ];
}

function attempt<T>(problems: string[], path: string, work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof PartProblem)) throw error;
    problems.push(`${path}: ${error.message}`);
    return undefined;
  }
}

async function resolveOwn(
  parts: ConnectionParts,
  context: ConnectionContext,
): Promise<ConnectionTarget> {
  try {
    return await resolveTarget(parts, context);
  } catch (error) {
    if (error instanceof PartProblem) throw new EntryProblems([`: ${error.message}`]);
    throw error;
  }
}
