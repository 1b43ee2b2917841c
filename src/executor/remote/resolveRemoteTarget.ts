import { existsSync } from "node:fs";
import { omitUndefined } from "../../shared/omitUndefined.js";
import { keywords, type KeywordName } from "../../shared/postgres/connectionString/keywords.js";
import { parseConnectionString, type GivenOptions } from "../../shared/postgres/connectionString/parse.js";
import { ConnectionStringError, ConnectionProblem, PasswordRequired } from "../../shared/postgres/errors.js";
import { ConnectionOptions, readTarget } from "../../shared/postgres/target/readTarget.js";
import { passwordFilePath, readPasswordFile } from "../../shared/postgres/target/passwordFile.js";
import { addPasswords, defaultConnectTimeoutMs } from "../../shared/postgres/target/resolveTarget.js";
import { withServers, type ConnectionTarget, serversOf } from "../../shared/postgres/target/target.js";
import { findUserFile, userFilePath } from "../../shared/postgres/transport/sslMode.js";

export interface RemoteContext {
  readonly managerTarget: ConnectionTarget;
  /** If not, the connection string must give a password, and must not use credentials of this machine. */
  readonly isSuperuser: boolean;
  readonly env: NodeJS.ProcessEnv;
  readonly warn: (message: string) => void;
}

/** Options that name files on this machine. */
const localFileOptions = ["passfile", "sslcert", "sslkey"] as const;

/**
 * What the string omits is taken from the manager's connection, then from the PG* variables, then from libpq's defaults.
 *
 * @throws ConnectionStringError; ConnectionProblem if a non-superuser gives no password, or names a local file
 */
export async function resolveRemote(text: string, context: RemoteContext): Promise<RemoteTarget> {
  const { env, isSuperuser, warn } = context;
  const given = parseConnectionString(text);
  if (!isSuperuser) requirePassword(given);
  const options = new ConnectionOptions(given, {
    env,
    inherited: managerDefaults(context, given),
    reads: (keyword) => !keywords[keyword].inherited && (isSuperuser || !["password", "passfile"].includes(keyword)),
  });
  const { sslrootcert, sslcert, sslkey, ...read } = readTarget(options, (name) => findUserFile(env, name));
  const target: RemoteTarget = {
    ...read,
    ...(isSuperuser ? omitUndefined({ sslcert, sslkey }) : {}),
    ...checkRoots(options, { ...omitUndefined({ sslrootcert }), sslmode: read.sslmode }, env),
    tls: { ...read.tls, keyMustBePrivate: true },
    database: options.text("dbname") ?? "",
    user: options.text("user") ?? "",
    connectTimeoutMs: read.connectTimeoutMs ?? 0,
    sessionAttributes: read.sessionAttributes ?? "any",
    keepAliveMs: read.keepAliveMs === undefined ? 0 : read.keepAliveMs,
    applicationName: options.text("application_name") ?? options.text("fallback_application_name") ?? null,
    startup: startupParameters(options, env),
    passwordRequired: !isSuperuser,
  };
  if (options.text("password") !== undefined) return target;
  const file = await readPasswordFile(options.text("passfile") ?? passwordFilePath(env), warn);
  return file === null ? target : withServers(target, addPasswords(target, file));
}

function requirePassword(given: GivenOptions): void {
  const file = localFileOptions.find((keyword) => given.has(keyword));
  if (file !== undefined) {
    throw new ConnectionProblem(`"${file}" is not allowed in the connection string`, {
      detail: "Non-superusers may not use files of the machine that pg-task runs on.",
    });
  }
  if (given.has("password")) return;
  throw new PasswordRequired({
    detail: "Non-superusers must provide a password in the connection string.",
  });
}

/**
 * Applies libpq's rules for root certificates: laxer for `require`, otherwise stricter than those of the configuration.
 */
function checkRoots(
  options: ConnectionOptions,
  { sslmode, sslrootcert }: Pick<ConnectionTarget, "sslmode" | "sslrootcert">,
  env: NodeJS.ProcessEnv,
): Pick<ConnectionTarget, "sslmode" | "sslrootcert"> {
  const asked = options.text("sslmode");
  const verifies = sslmode === "verify-ca" || sslmode === "verify-full";
  if (sslmode === "verify-full" && !options.text("host")) {
    throw new ConnectionStringError("host name must be specified for a verified SSL connection");
  }
  // Only an existing file makes `require` verify the server.
  if (sslrootcert !== undefined && !asked?.startsWith("verify") && !existsSync(sslrootcert)) {
    return { sslmode: asked === "require" ? "require" : sslmode };
  }
  if (sslrootcert !== undefined) return { sslmode, sslrootcert };
  // A manager's connection verifies certificates without such a file, and so do remote ones that inherit its sslmode.
  if (!verifies || options.text("sslrootcert") === "system" || !options.given.has("sslmode")) return { sslmode };
  throw new ConnectionStringError(
    `root certificate file "${userFilePath(env, "root.crt")}" does not exist\nEither provide the file, use the system's trusted roots with sslrootcert=system, or change sslmode to disable server certificate verification.`,
  );
}

function startupParameters(options: ConnectionOptions, env: NodeJS.ProcessEnv): Record<string, string> {
  const encoding = options.text("client_encoding");
  const parameters = {
    client_encoding: encoding === "auto" ? undefined : encoding,
    datestyle: env["PGDATESTYLE"],
    timezone: env["PGTZ"],
    geqo: env["PGGEQO"],
  };
  return Object.fromEntries(Object.entries(parameters).flatMap(([name, value]) => (value ? [[name, value]] : [])));
}

function managerDefaults(
  { managerTarget: target, isSuperuser }: RemoteContext,
  given: GivenOptions,
): Map<KeywordName, string> {
  const options = new Map<KeywordName, string>();
  const add = (keyword: KeywordName, value: string | number | undefined): void => {
    if (value !== undefined) options.set(keyword, String(value));
  };
  if (!given.has("hostaddr")) add("host", target.host);
  // The host name may have further addresses, which may lead to other servers.
  if (!given.has("host") && !given.has("hostaddr")) add("hostaddr", target.address);
  add("port", target.port);
  add("dbname", target.database);
  add("user", target.user);
  add("connect_timeout", Math.ceil((target.connectTimeoutMs || defaultConnectTimeoutMs) / 1000));
  if (given.get("sslrootcert") !== "system") add("sslmode", target.sslmode);
  add("sslrootcert", target.sslrootcert);
  if (!isSuperuser) return options;
  add("sslcert", target.sslcert);
  add("sslkey", target.sslkey);
  // The manager's password belongs to the manager's server and user, and must not be sent to other servers or for other
  // users.
  const elsewhere = (["host", "hostaddr", "port", "user"] as const).some((key) => given.has(key));
  // A remote connection reads the password file itself, so that it uses a password that has changed.
  if (!elsewhere && target.passwordFile === undefined) add("password", target.password);
  return options;
}

/** Contains secrets: log only the result of `describeRemoteTarget`. */
export interface RemoteTarget extends ConnectionTarget {
  readonly applicationName: string | null;
  readonly startup: Readonly<Record<string, string>>;
  /** Whether connecting must fail if the server does not ask for the password. */
  readonly passwordRequired: boolean;
}

export function describeRemoteTarget(target: RemoteTarget): string {
  const addresses = serversOf(target).map(({ host, port }) => `${host}:${port}`);
  return `${target.user}@${addresses.join(",")}/${target.database}`;
}
