import { omitUndefined } from "../omitUndefined.js";
import { ConnectionStringError } from "../postgres/errors.js";
import { resolveTarget, type ConnectionContext, parseTargetUrl } from "../postgres/target/resolveTarget.js";
import type { RawEntry } from "./fileSchema.js";
import type { Entry } from "./types.js";
import type { FileParameters } from "./parameterTable.js";
import { serverLabel, serversOf, type ConnectionTarget } from "../postgres/target/target.js";
import { MissingSecret, resolveSecret } from "./secretValue.js";
import { noOptions, type GivenOptions } from "../postgres/connectionString/parse.js";
import { aliasProblems, givenParameters } from "./parameters.js";

export interface EntryContext extends ConnectionContext {
  readonly controlGiven: GivenOptions;
  readonly control: ConnectionTarget;
  readonly parameters: FileParameters;
  readonly createRolesAndDatabases: boolean;
  readonly lazySecrets: boolean;
}

export class EntryProblems extends Error {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join("\n"));
    this.problems = problems;
  }
}

/** @throws EntryProblems */
export async function resolveEntry(raw: RawEntry, context: EntryContext): Promise<Entry> {
  const problems = [...aliasProblems(raw).map((text) => `: ${text}`), ...duplicateKeys(raw)];
  const url = attempt(problems, ".url", () => (raw.url === undefined ? noOptions : parseTargetUrl(raw.url)));
  const missing: string[] = context.lazySecrets ? [] : problems;
  const password = attempt(missing, ".password", () =>
    raw.password === undefined ? undefined : resolveSecret(raw.password, context.env, "password"),
  );
  if (url !== undefined) problems.push(...contradictions(raw, url));
  if (problems.length > 0 || url === undefined) throw new EntryProblems(problems);

  const own = password ?? url.get("password");
  const { database, user } = resolveNames(raw, url, context.parameters);
  const sameUser = user === context.control.user && raw.url === undefined;
  const inherited = sameUser ? context.controlGiven.get("password") : undefined;
  const server = raw.url === undefined ? context.controlGiven : url;
  const given = new Map([...server, ["dbname", database], ["user", user]] as const);
  given.delete("password");
  const givenPassword = own ?? inherited;
  if (givenPassword !== undefined) given.set("password", givenPassword);
  const target = await resolveEntryTarget(given, context);
  const entry = makeEntry(raw, target, { ...context, hasOwnPassword: own !== undefined });
  const [missingPassword] = missing;
  return missingPassword === undefined ? entry : { ...entry, missingPassword };
}

/** The entry if the configuration lists none. */
export function ownEntry(control: ConnectionTarget, parameters: FileParameters): Entry {
  return makeEntry({}, control, { hasOwnPassword: false, createRolesAndDatabases: false, parameters });
}

function makeEntry(
  raw: RawEntry,
  target: ConnectionTarget,
  context: Pick<EntryContext, "createRolesAndDatabases" | "parameters"> & { readonly hasOwnPassword: boolean },
): Entry {
  const { parameters: base, hasOwnPassword, createRolesAndDatabases } = context;
  const own = givenParameters(raw);
  const given = { ...base, ...own };
  const ownTable = omitUndefined({
    schema: raw.schema ?? own["pg_task.schema"],
    table: raw.table ?? own["pg_task.table"],
  });
  const schema = ownTable.schema ?? base["pg_task.schema"];
  const table = ownTable.table ?? base["pg_task.table"];
  const { sleep, reset, run } = raw;
  const parameters = {
    ...given,
    // Managers do not need the tokens.
    "pg_http.token": "",
    "pg_http.readonly": "",
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
    createRoleAndDatabase: raw.create ?? createRolesAndDatabases,
    users: raw.users ?? false,
    parameters,
    fixed: omitUndefined({ sleep, reset, run, ...ownTable }),
  };
}

/**
 * `host:port/database/schema.table`, with several servers sorted. Entries that name the same table have the same key.
 */
function entryKey(target: ConnectionTarget, schema: string, table: string): string {
  const servers = serversOf(target).map(({ host, port }) =>
    serverLabel({ host: host.startsWith("/") ? host : host.toLowerCase(), port }),
  );
  const [database, inSchema, name] = [target.database, schema, table].map((each) =>
    encodeURIComponent(each).replaceAll(".", "%2E"),
  );
  return `${servers.toSorted().join(",")}/${database}/${inSchema}.${name}`;
}

/** If `user` or `data` is missing, it takes the value of the other; if both are, they come from the parameters. */
function resolveNames(
  raw: RawEntry,
  url: GivenOptions,
  parameters: FileParameters,
): { database: string; user: string } {
  const data = raw.data ?? url.get("dbname");
  const user = raw.user ?? url.get("user");
  return {
    database: data ?? user ?? parameters["pg_task.data"],
    user: user ?? data ?? parameters["pg_task.user"],
  };
}

function duplicateKeys(raw: RawEntry): string[] {
  return ["schema", "table", "sleep", "reset", "run"].flatMap((name) =>
    raw[name] !== undefined && raw[`pg_task.${name}`] !== undefined
      ? [`: expected one of "${name}" and "pg_task.${name}" in one entry, got both`]
      : [],
  );
}

function contradictions(raw: RawEntry, url: GivenOptions): string[] {
  const twoPasswords = raw.password !== undefined && url.get("password") !== undefined;
  return [
    ...contradiction("data", raw.data, url.get("dbname")),
    ...contradiction("user", raw.user, url.get("user")),
    ...(twoPasswords ? [".password: expected no password in addition to the one in the entry's url"] : []),
  ];
}

function contradiction(key: string, given: string | undefined, inUrl: string | undefined): string[] {
  if (given === undefined || inUrl === undefined || given === inUrl) return [];
  return [`.${key}: expected the same as in the entry's url, ${JSON.stringify(inUrl)}, got ${JSON.stringify(given)}`];
}

function attempt<T>(problems: string[], path: string, work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    const expected = error instanceof ConnectionStringError || error instanceof MissingSecret;
    if (!expected) throw error;
    problems.push(`${path}: ${error.message}`);
    return undefined;
  }
}

async function resolveEntryTarget(parts: GivenOptions, context: ConnectionContext): Promise<ConnectionTarget> {
  try {
    return await resolveTarget(parts, context);
  } catch (error) {
    if (error instanceof ConnectionStringError) throw new EntryProblems([`: ${error.message}`]);
    throw error;
  }
}
