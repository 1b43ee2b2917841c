import { existsSync } from "node:fs";
import { homedir, userInfo } from "node:os";
import { isIP } from "node:net";
import { join } from "node:path";
import type { ConnectionTarget } from "../../config/types.js";
import {
  defaultSocketFolder,
  findPassword,
  passwordFilePath,
  readPasswordFile,
} from "./passwordFile.js";
import { omitUndefined } from "../../omitUndefined.js";
import {
  PartProblem,
  readHost,
  readPort,
  readSslMode,
  readTimeout,
  type ConnectionParts,
} from "./parseUrl.js";

/** Where a connection's missing parts come from. */
export interface ConnectionContext {
  readonly env: NodeJS.ProcessEnv;
  /** Gets told why a password file was passed over. */
  readonly warn: (message: string) => void;
}

/**
 * How long connecting may take when nobody says: libpq would wait for ever, and a server that
 * accepts and never answers would hold everything up.
 */
export const defaultConnectTimeoutMs = 10_000;

/** The variables that describe a connection, and what each of them says. */
const variables: Readonly<Record<string, (text: string) => ConnectionParts>> = {
  PGHOST: (text) => ({ host: readHost(text) }),
  PGHOSTADDR: (text) => ({ host: readAddress(text) }),
  PGPORT: (text) => ({ port: readPort(text) }),
  PGDATABASE: (text) => ({ database: text }),
  PGUSER: (text) => ({ user: text }),
  PGPASSWORD: (text) => ({ password: text }),
  PGPASSFILE: () => ({}),
  PGSSLMODE: (text) => ({ sslmode: readSslMode(text) }),
  PGSSLROOTCERT: (text) => ({ sslrootcert: text }),
  PGSSLCERT: (text) => ({ sslcert: text }),
  PGSSLKEY: (text) => ({ sslkey: text }),
  PGCONNECT_TIMEOUT: (text) => ({ connectTimeoutMs: readTimeout(text) }),
};

/** The names of the PG* variables that are read; what is empty counts as not set. */
export const connectionVariables: readonly string[] = Object.keys(variables);

/** @throws PartProblem naming the variable. */
export function partsFromEnvironment(env: NodeJS.ProcessEnv): ConnectionParts {
  if (env["PGSERVICE"]) {
    throw new PartProblem(
      `PGSERVICE: expected it not to be set, got ${JSON.stringify(env["PGSERVICE"])}: service files are not supported here; give a url, or the service's settings as PGHOST, PGPORT, …`,
    );
  }
  let parts: ConnectionParts = {};
  for (const [name, read] of Object.entries(variables)) {
    const text = env[name];
    if (!text) continue;
    try {
      parts = { ...parts, ...read(text) };
    } catch (error) {
      if (error instanceof PartProblem) throw new PartProblem(`${name}: ${error.message}`);
      throw error;
    }
  }
  return parts;
}

function readAddress(text: string): string {
  if (isIP(text) !== 0) return text;
  throw new PartProblem(`expected an IP address, got ${JSON.stringify(text)}`);
}

/**
 * A whole target out of what is known: what `parts` leave open comes from the PG* variables, then
 * from libpq's defaults. A password comes last from the password file.
 *
 * @throws PartProblem
 */
export async function resolveTarget(
  parts: ConnectionParts,
  context: ConnectionContext,
): Promise<ConnectionTarget> {
  const { env } = context;
  const known: ConnectionParts = { ...partsFromEnvironment(env), ...parts };
  const host = known.host ?? (process.platform === "win32" ? "localhost" : defaultSocketFolder);
  const user = known.user ?? systemUser();
  const target = {
    host,
    port: known.port ?? 5432,
    database: known.database ?? user,
    user,
    ...security(known, env),
    connectTimeoutMs: known.connectTimeoutMs ?? defaultConnectTimeoutMs,
  };
  if (target.sslmode === "verify-full" && parts.host === undefined) refuseTwoHosts(env);
  const password = known.password ?? (await passwordFor(target, context, env["PGHOST"]));
  return password === null ? target : { ...target, password };
}

/** A certificate is made out to the name, and the target keeps only the address. */
function refuseTwoHosts(env: NodeJS.ProcessEnv): void {
  if (!env["PGHOST"] || !env["PGHOSTADDR"]) return;
  throw new PartProblem(
    "PGHOSTADDR: expected it not to be set beside PGHOST with sslmode verify-full, which checks the name in PGHOST",
  );
}

async function passwordFor(
  target: Omit<ConnectionTarget, "password">,
  { env, warn }: ConnectionContext,
  name: string | undefined,
): Promise<string | null> {
  const text = await readPasswordFile(passwordFilePath(env), warn);
  if (text === null) return null;
  // A line is looked up by the name, also where an address beside it says where to connect.
  const host = name && target.host === env["PGHOSTADDR"] ? name : target.host;
  return findPassword(text, { ...target, host });
}

/** libpq's rules for sslmode and the files that go with it. */
function security(
  known: ConnectionParts,
  env: NodeJS.ProcessEnv,
): Pick<ConnectionTarget, "sslmode" | "sslrootcert" | "sslcert" | "sslkey"> {
  const system = known.sslrootcert === "system";
  const sslmode = known.sslmode ?? (system ? "verify-full" : "prefer");
  if (system && sslmode !== "verify-full") {
    throw new PartProblem(
      `expected sslmode verify-full with sslrootcert "system", got ${JSON.stringify(sslmode)}`,
    );
  }
  const folder = join(env["HOME"] || homedir(), ".postgresql");
  const inFolder = (name: string): string | undefined => {
    const path = join(folder, name);
    return existsSync(path) ? path : undefined;
  };
  const root = system ? undefined : (known.sslrootcert ?? inFolder("root.crt"));
  const sslcert = known.sslcert ?? inFolder("postgresql.crt");
  const sslkey = known.sslkey ?? (sslcert === undefined ? undefined : inFolder("postgresql.key"));
  return {
    // With root certificates at hand, libpq checks who signed even when it needn't.
    sslmode: sslmode === "require" && root !== undefined ? "verify-ca" : sslmode,
    ...omitUndefined({ sslrootcert: root, sslcert, sslkey }),
  };
}

function systemUser(): string {
  try {
    return userInfo().username;
  } catch {
    throw new PartProblem(
      "expected a user in the url or in PGUSER: this process's own user has no name on this system",
    );
  }
}
