import {
  parseConnectionString,
  type ConnectionWords,
} from "../../shared/postgres/connectionString/parse.js";
import { ConnectionStringError } from "../../shared/postgres/connectionString/error.js";
import {
  authMethods,
  channelBindings,
  type AuthMethod,
} from "../../shared/postgres/auth/credentials.js";
import { ConnectionProblem, PasswordRequired } from "../../shared/postgres/errors.js";
import { readSecurity } from "./resolveSecurity.js";
import { readServers, withPasswords } from "./resolveServers.js";
import { sessionAttributes, type RemoteTarget } from "./remoteTarget.js";
import { ConnectionOptions, type RemoteContext } from "./connectionOptions.js";

/** What must not be read from this machine for somebody else. */
const ownFiles = ["passfile", "sslcert", "sslkey"] as const;

/**
 * A whole target out of a connection string: what it leaves open comes from the manager's own
 * connection, then from the PG* variables, then from libpq's defaults.
 *
 * @throws ConnectionStringProblem
 * @throws ConnectionProblem when the password is missing that it has to bring
 */
export async function resolveRemote(text: string, context: RemoteContext): Promise<RemoteTarget> {
  const said = parseConnectionString(text);
  if (!context.superuser) requireOwnIdentity(said);
  const words = new ConnectionOptions(said, context);
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
    throw new ConnectionProblem(`"${file}" is not allowed in the connection string`, {
      detail: "Non-superusers may not use files of the machine that pg-task runs on.",
    });
  }
  if (said.has("password")) return;
  throw new PasswordRequired({
    detail: "Non-superusers must provide a password in the connection string.",
  });
}

/** `require_auth`: a list of what is allowed, or, each with "!" before it, of what is not. */
function readAuthMethods(words: ConnectionOptions): ReadonlySet<AuthMethod> | null {
  const list = words.list("require_auth");
  if (list.length === 0) return null;
  const negated = list.map((each) => each.startsWith("!"));
  if (new Set(negated).size > 1) {
    const odd = list[negated.findIndex((each) => each !== negated[0])];
    const kind = negated[0] === true ? "cannot be mixed with" : "negative";
    throw new ConnectionStringError(
      negated[0] === true
        ? `require_auth method "${odd}" ${kind} negative methods`
        : `${kind} require_auth method "${odd}" cannot be mixed with non-negative methods`,
    );
  }
  const named = list.map((each) => {
    const method = authMethods.find((known) => known === each.replace(/^!/, ""));
    if (method !== undefined) return method;
    throw new ConnectionStringError(`invalid require_auth value: "${words.text("require_auth")}"`);
  });
  if (negated[0] !== true) return new Set(named);
  return new Set(authMethods.filter((method) => !named.includes(method)));
}

function readStartup(words: ConnectionOptions, env: NodeJS.ProcessEnv): Record<string, string> {
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

function readKeepAlive(words: ConnectionOptions): number | null {
  if (words.integer("keepalives") === 0) return null;
  return Math.max(0, words.integer("keepalives_idle") ?? 0) * 1000;
}
