import { existsSync } from "node:fs";
import { isIP } from "node:net";
import { homedir } from "node:os";
import { join } from "node:path";
import { defaultConnectTimeoutMs } from "../../shared/config/connection.js";
import {
  defaultSocketFolder,
  findPassword,
  passwordFilePath,
  readPasswordFile,
} from "../../shared/config/passwordFile.js";
import type { ConnectionTarget } from "../../shared/config/types.js";
import { sslModes } from "../../shared/config/url.js";
import { keywords, type KeywordName } from "../../shared/connectionString/keywords.js";
import {
  parseConnectionString,
  type ConnectionWords,
} from "../../shared/connectionString/parse.js";
import { ConnectionStringProblem } from "../../shared/connectionString/problem.js";
import { PasswordRequired, RemoteProblem } from "./problem.js";
import {
  authMethods,
  channelBindings,
  sessionAttributes,
  tlsVersions,
  type AuthMethod,
  type RemoteSecurity,
  type RemoteServer,
  type RemoteTarget,
} from "./target.js";

/** Who asks for a remote connection, and from where. */
export interface RemoteContext {
  /** The manager's own connection: what a string leaves open comes from it. */
  readonly own: ConnectionTarget;
  /** Whether its user is superuser there; who is not must bring a password and may use nothing of ours. */
  readonly superuser: boolean;
  readonly env: NodeJS.ProcessEnv;
  readonly warn: (message: string) => void;
}

/** What must not be read from this machine for somebody else. */
const ownFiles = ["passfile", "sslcert", "sslkey"] as const;

/**
 * A whole target out of a connection string: what it leaves open comes from the manager's own
 * connection, then from the PG* variables, then from libpq's defaults.
 *
 * @throws ConnectionStringProblem
 * @throws RemoteProblem when the password is missing that it has to bring
 */
export async function resolveRemote(text: string, context: RemoteContext): Promise<RemoteTarget> {
  const said = parseConnectionString(text);
  if (!context.superuser) requireOwnIdentity(said);
  const words = new Words(said, context);
  const servers = readServers(words);
  const [first] = servers;
  return {
    servers: await withPasswords(servers, words, context),
    database: words.text("dbname") ?? "",
    user: words.text("user") ?? "",
    security: readSecurity(words, context, first?.host ?? ""),
    connectTimeoutMs: Math.max(0, words.integer("connect_timeout") ?? 0) * 1000,
    applicationName:
      words.text("application_name") ?? words.text("fallback_application_name") ?? null,
    startup: readStartup(words, context.env),
    sessionAttributes: words.choice("target_session_attrs", sessionAttributes) ?? "any",
    channelBinding: words.choice("channel_binding", channelBindings) ?? "prefer",
    authMethods: readAuthMethods(words),
    passwordRequired: !context.superuser,
    keepAliveMs: readKeepAlive(words),
  };
}

function requireOwnIdentity(said: ConnectionWords): void {
  const file = ownFiles.find((keyword) => said.has(keyword));
  if (file !== undefined) {
    throw new RemoteProblem(`"${file}" is not allowed in the connection string`, {
      detail: "Non-superusers may not use files of the machine that pg-task runs on.",
    });
  }
  if (said.has("password")) return;
  throw new PasswordRequired({
    detail: "Non-superusers must provide a password in the connection string.",
  });
}

/** What a connection string says, with what stands in for what it leaves open. */
class Words {
  readonly said: ConnectionWords;
  readonly #own: ReadonlyMap<KeywordName, string>;
  readonly #env: NodeJS.ProcessEnv;
  readonly #superuser: boolean;

  constructor(said: ConnectionWords, { own, env, superuser }: RemoteContext) {
    this.said = said;
    this.#own = ownWords(own, said, superuser);
    this.#env = env;
    this.#superuser = superuser;
    this.integer("keepalives_interval");
    this.integer("keepalives_count");
    this.integer("tcp_user_timeout");
    this.#refuseWhatCannotBe();
  }

  text(keyword: KeywordName): string | undefined {
    return this.said.get(keyword) ?? this.#own.get(keyword) ?? this.#fromVariable(keyword);
  }

  integer(keyword: KeywordName): number | undefined {
    const text = this.text(keyword);
    if (text === undefined) return undefined;
    const value = readInteger(text);
    if (value !== null) return value;
    throw new ConnectionStringProblem(
      `invalid integer value "${text}" for connection option "${keyword}"`,
    );
  }

  choice<T extends string>(keyword: KeywordName, choices: readonly T[]): T | undefined {
    const text = this.text(keyword);
    const known = choices.find((choice) => choice === text);
    if (text === undefined || known !== undefined) return known;
    throw new ConnectionStringProblem(`invalid ${keyword} value: "${text}"`);
  }

  /** The parts of a list with commas. */
  list(keyword: KeywordName): string[] {
    return this.text(keyword)?.split(",") ?? [];
  }

  #fromVariable(keyword: KeywordName): string | undefined {
    const { variable } = keywords[keyword];
    const identity = keyword === "password" || keyword === "passfile";
    if (variable === undefined || (identity && !this.#superuser)) return undefined;
    return this.#env[variable] || undefined;
  }

  #refuseWhatCannotBe(): void {
    for (const keyword of ["service", "requirepeer", "sslcrldir"] as const) {
      if (this.text(keyword) === undefined) continue;
      const { variable } = keywords[keyword];
      throw new ConnectionStringProblem(`${variable} is not supported for remote tasks`);
    }
    const encryption = this.choice("gssencmode", ["disable", "prefer", "require"]);
    if (encryption === "require") {
      throw new ConnectionStringProblem(
        'gssencmode value "require" invalid when GSSAPI support is not compiled in',
      );
    }
    const versions = ["3.0", "3.2", "latest"] as const;
    const oldest = this.choice("min_protocol_version", versions) ?? "3.0";
    this.choice("max_protocol_version", versions);
    if (oldest !== "3.0") {
      throw new ConnectionStringProblem(`min_protocol_version "${oldest}" is not supported`);
    }
  }
}

/** As C's strtol reads it: within an int, blanks around it do no harm. */
function readInteger(text: string): number | null {
  const value = /^\s*[-+]?\d+\s*$/.test(text) ? Number(text) : Number.NaN;
  return Number.isInteger(value) && Math.abs(value) < 2 ** 31 ? value : null;
}

/** The manager's own connection in the words of a connection string. */
function ownWords(
  own: ConnectionTarget,
  said: ConnectionWords,
  superuser: boolean,
): Map<KeywordName, string> {
  const words = new Map<KeywordName, string>();
  const add = (keyword: KeywordName, value: string | number | undefined): void => {
    if (value !== undefined) words.set(keyword, String(value));
  };
  if (!said.has("hostaddr")) add("host", own.host);
  add("port", own.port);
  add("dbname", own.database);
  add("user", own.user);
  add("connect_timeout", Math.ceil((own.connectTimeoutMs || defaultConnectTimeoutMs) / 1000));
  if (!(said.get("sslrootcert") === "system")) add("sslmode", own.sslmode);
  add("sslrootcert", own.sslrootcert);
  if (!superuser) return words;
  add("sslcert", own.sslcert);
  add("sslkey", own.sslkey);
  // It is meant for that server and that user, and goes to nobody else.
  const elsewhere = (["host", "hostaddr", "port", "user"] as const).some((key) => said.has(key));
  if (!elsewhere) add("password", own.password);
  return words;
}

function readServers(words: Words): Omit<RemoteServer, "password">[] {
  const addresses = words.list("hostaddr");
  const hosts = words.list("host");
  const ports = words.list("port");
  const count = addresses.length || hosts.length || 1;
  if (addresses.length > 0 && hosts.length > 0 && hosts.length !== addresses.length) {
    throw new ConnectionStringProblem(
      `could not match ${hosts.length} host names to ${addresses.length} hostaddr values`,
    );
  }
  if (ports.length > 1 && ports.length !== count) {
    throw new ConnectionStringProblem(
      `could not match ${ports.length} port numbers to ${count} hosts`,
    );
  }
  return Array.from({ length: count }, (_, place) => {
    const address = addresses[place] || null;
    if (address !== null && isIP(address) === 0) {
      throw new ConnectionStringProblem(
        `could not parse network address "${address}": Name or service not known`,
      );
    }
    const host = hosts[place] || (address === null ? defaultSocketFolder : "");
    return { host, address, port: readPort(ports[place] ?? ports[0] ?? "") };
  });
}

function readPort(text: string): number {
  if (text === "") return 5432;
  const port = readInteger(text);
  if (port === null) {
    throw new ConnectionStringProblem(
      `invalid integer value "${text}" for connection option "port"`,
    );
  }
  if (port >= 1 && port <= 65_535) return port;
  throw new ConnectionStringProblem(`invalid port number: "${text}"`);
}

async function withPasswords(
  servers: readonly Omit<RemoteServer, "password">[],
  words: Words,
  context: RemoteContext,
): Promise<RemoteServer[]> {
  const given = words.text("password");
  if (given !== undefined)
    return shuffled(
      servers.map((each) => ({ ...each, password: given })),
      words,
    );
  const path = words.text("passfile") ?? passwordFilePath(context.env);
  const file = await readPasswordFile(path, context.warn);
  const database = words.text("dbname") ?? "";
  const user = words.text("user") ?? "";
  const found = servers.map((each) => {
    const host = each.host || (each.address ?? "");
    const password =
      file === null ? null : findPassword(file, { host, port: each.port, database, user });
    return { ...each, password };
  });
  return shuffled(found, words);
}

function shuffled(servers: readonly RemoteServer[], words: Words): RemoteServer[] {
  const random = words.choice("load_balance_hosts", ["disable", "random"]) === "random";
  if (!random) return [...servers];
  return servers
    .map((server) => ({ server, place: Math.random() }))
    .toSorted((a, b) => a.place - b.place)
    .map(({ server }) => server);
}

function readSecurity(
  words: Words,
  { env, superuser }: RemoteContext,
  host: string,
): RemoteSecurity {
  const roots = readRoots(words, env);
  const asked = words.choice("sslmode", sslModes);
  const mode = asked ?? (roots.kind === "system" ? "verify-full" : "prefer");
  if (words.said.get("sslrootcert") === "system" && mode !== "verify-full") {
    throw new ConnectionStringProblem(
      `weak sslmode "${mode}" may not be used with sslrootcert=system (use "verify-full")`,
    );
  }
  const direct = words.choice("sslnegotiation", ["postgres", "direct"]) === "direct";
  if (direct && ["disable", "allow", "prefer"].includes(mode)) {
    throw new ConnectionStringProblem(
      `weak sslmode "${mode}" may not be used with sslnegotiation=direct (use "require", "verify-ca", or "verify-full")`,
    );
  }
  if (mode === "verify-full" && host === "") {
    throw new ConnectionStringProblem("host name must be specified for a verified SSL connection");
  }
  const [oldest, newest] = readTlsRange(words);
  const certificates = words.choice("sslcertmode", ["disable", "allow", "require"]) ?? "allow";
  if (certificates === "require") {
    throw new ConnectionStringProblem('sslcertmode "require" is not supported');
  }
  const identity = superuser && certificates === "allow";
  const certificate = identity ? (words.text("sslcert") ?? inHome(env, "postgresql.crt")) : null;
  const key = words.text("sslkey") ?? inHome(env, "postgresql.key");
  return {
    // With root certificates at hand, who signed is checked even where it need not be.
    mode: mode === "require" && roots.kind === "file" ? "verify-ca" : mode,
    direct,
    roots,
    revoked: words.text("sslcrl") ?? inHome(env, "root.crl"),
    certificate,
    key: certificate === null ? null : key,
    keyPassword: words.text("sslpassword") ?? null,
    named: words.text("sslsni") !== "0",
    oldest,
    newest,
  };
}

function readRoots(words: Words, env: NodeJS.ProcessEnv): RemoteSecurity["roots"] {
  const path = words.text("sslrootcert");
  if (path === "system") return { kind: "system" };
  if (path !== undefined) {
    const required = words.text("sslmode")?.startsWith("verify") === true;
    return required || existsSync(path) ? { kind: "file", path } : { kind: "none" };
  }
  const usual = inHome(env, "root.crt");
  if (usual !== null) return { kind: "file", path: usual };
  // Where the manager's own connection verifies without a file, so does this one.
  const inherited = !words.said.has("sslmode");
  const verifies = words.text("sslmode")?.startsWith("verify") === true;
  if (!verifies) return { kind: "none" };
  if (inherited) return { kind: "system" };
  throw new ConnectionStringProblem(
    `root certificate file "${homeFile(env, "root.crt")}" does not exist\nEither provide the file, use the system's trusted roots with sslrootcert=system, or change sslmode to disable server certificate verification.`,
  );
}

function homeFile(env: NodeJS.ProcessEnv, name: string): string {
  return join(env["HOME"] || homedir(), ".postgresql", name);
}

function inHome(env: NodeJS.ProcessEnv, name: string): string | null {
  const path = homeFile(env, name);
  return existsSync(path) ? path : null;
}

function readTlsRange(words: Words): [RemoteSecurity["oldest"], RemoteSecurity["newest"]] {
  const oldest = words.choice("ssl_min_protocol_version", tlsVersions) ?? "TLSv1.2";
  const newest = words.choice("ssl_max_protocol_version", tlsVersions) ?? null;
  if (newest !== null && tlsVersions.indexOf(newest) < tlsVersions.indexOf(oldest)) {
    throw new ConnectionStringProblem("invalid SSL protocol version range");
  }
  return [oldest, newest];
}

/** `require_auth`: a list of what is allowed, or, each with "!" before it, of what is not. */
function readAuthMethods(words: Words): ReadonlySet<AuthMethod> | null {
  const list = words.list("require_auth");
  if (list.length === 0) return null;
  const negated = list.map((each) => each.startsWith("!"));
  if (new Set(negated).size > 1) {
    const odd = list[negated.findIndex((each) => each !== negated[0])];
    const kind = negated[0] === true ? "cannot be mixed with" : "negative";
    throw new ConnectionStringProblem(
      negated[0] === true
        ? `require_auth method "${odd}" ${kind} negative methods`
        : `${kind} require_auth method "${odd}" cannot be mixed with non-negative methods`,
    );
  }
  const named = list.map((each) => {
    const method = authMethods.find((known) => known === each.replace(/^!/, ""));
    if (method !== undefined) return method;
    throw new ConnectionStringProblem(
      `invalid require_auth value: "${words.text("require_auth")}"`,
    );
  });
  if (negated[0] !== true) return new Set(named);
  return new Set(authMethods.filter((method) => !named.includes(method)));
}

function readStartup(words: Words, env: NodeJS.ProcessEnv): Record<string, string> {
  const startup: Record<string, string> = {};
  const add = (name: string, value: string | undefined): void => {
    if (value) startup[name] = value;
  };
  add("options", words.text("options"));
  const encoding = words.text("client_encoding");
  add("client_encoding", encoding === "auto" ? undefined : encoding);
  add("datestyle", env["PGDATESTYLE"]);
  add("timezone", env["PGTZ"]);
  add("geqo", env["PGGEQO"]);
  return startup;
}

function readKeepAlive(words: Words): number | null {
  if (words.integer("keepalives") === 0) return null;
  return Math.max(0, words.integer("keepalives_idle") ?? 0) * 1000;
}
