import { parseConnectionString, type GivenOptions } from "../../shared/postgres/connectionString/parse.js";
import { shownValue } from "../../shared/postgres/connectionString/mayShow.js";
import { ConnectionStringError, ConnectionProblem, PasswordRequired } from "../../shared/postgres/errors.js";
import { authMethods, channelBindings, type AuthMethod } from "../../shared/postgres/auth/credentials.js";
import { resolveTls } from "./resolveTls.js";
import { resolveServers, addPasswords } from "./resolveServers.js";
import { sessionAttributes } from "../../shared/postgres/target/target.js";
import type { RemoteTarget } from "./remoteTarget.js";
import { ConnectionOptions, type RemoteContext } from "./connectionOptions.js";

/** Options that name files on this machine. Only superusers may use them. */
const localFileOptions = ["passfile", "sslcert", "sslkey"] as const;

/**
 * Resolves a task's connection string. What the string omits is taken from the manager's connection, then from the PG*
 * environment variables, then from libpq's defaults.
 *
 * @throws ConnectionStringError
 * @throws ConnectionProblem if a non-superuser gives no password, or names a local file
 */
export async function resolveRemote(text: string, context: RemoteContext): Promise<RemoteTarget> {
  const given = parseConnectionString(text);
  if (!context.isSuperuser) requirePassword(given);
  const options = new ConnectionOptions(given, context);
  const servers = resolveServers(options);
  const [first] = servers;
  return {
    servers: await addPasswords(servers, options, context),
    database: options.text("dbname") ?? "",
    user: options.text("user") ?? "",
    tls: resolveTls(options, context, first?.host ?? ""),
    connectTimeoutMs: Math.max(0, options.integer("connect_timeout") ?? 0) * 1000,
    applicationName: options.text("application_name") ?? options.text("fallback_application_name") ?? null,
    startup: startupParameters(options, context.env),
    sessionAttributes: options.choice("target_session_attrs", sessionAttributes) ?? "any",
    channelBinding: options.choice("channel_binding", channelBindings) ?? "prefer",
    authMethods: resolveAuthMethods(options),
    passwordRequired: !context.isSuperuser,
    keepAliveMs: resolveKeepAlive(options),
  };
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
 * Resolves the option `require_auth`. It lists either the allowed methods, or the forbidden methods, each with "!"
 * before it.
 *
 * @returns the allowed methods, or null if all methods are allowed
 */
function resolveAuthMethods(options: ConnectionOptions): ReadonlySet<AuthMethod> | null {
  const list = options.list("require_auth");
  if (list.length === 0) return null;
  const negated = list.map((each) => each.startsWith("!"));
  if (new Set(negated).size > 1) {
    const conflicting = shownValue("require_auth", list[negated.findIndex((each) => each !== negated[0])] ?? "");
    const kind = negated[0] === true ? "cannot be mixed with" : "negative";
    throw new ConnectionStringError(
      negated[0] === true
        ? `require_auth method "${conflicting}" ${kind} negative methods`
        : `${kind} require_auth method "${conflicting}" cannot be mixed with non-negative methods`,
    );
  }
  const named = list.map((each) => {
    const method = authMethods.find((known) => known === each.replace(/^!/, ""));
    if (method !== undefined) return method;
    throw new ConnectionStringError(`invalid require_auth value: "${shownValue("require_auth", list.join(","))}"`);
  });
  if (negated[0] !== true) return new Set(named);
  return new Set(authMethods.filter((method) => !named.includes(method)));
}

function startupParameters(options: ConnectionOptions, env: NodeJS.ProcessEnv): Record<string, string> {
  const startup: Record<string, string> = {};
  const add = (name: string, value: string | undefined): void => {
    if (value) startup[name] = value;
  };
  add("options", options.text("options"));
  const encoding = options.text("client_encoding");
  add("client_encoding", encoding === "auto" ? undefined : encoding);
  add("datestyle", env["PGDATESTYLE"]);
  add("timezone", env["PGTZ"]);
  add("geqo", env["PGGEQO"]);
  return startup;
}

function resolveKeepAlive(options: ConnectionOptions): number | null {
  if (options.integer("keepalives") === 0) return null;
  return Math.max(0, options.integer("keepalives_idle") ?? 0) * 1000;
}
