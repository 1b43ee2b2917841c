import { randomBytes } from "node:crypto";
import { Client, DatabaseError } from "pg";
import type { ConnectionTarget } from "./config/types.js";
import { PgTaskError } from "./errors.js";

export type { Client };

/** Settings given in the startup packet: RESET ALL and a role's or database's settings leave them be. */
export type StartupSettings = Readonly<Record<string, string | number>>;

/** Names a target in logs and errors: never with its password. */
export function describeTarget(target: ConnectionTarget): string {
  const user = encodeURIComponent(target.user);
  const database = encodeURIComponent(target.database);
  if (target.host.startsWith("/")) {
    return `postgresql://${user}@/${database}?host=${target.host}&port=${target.port}`;
  }
  const host = target.host.includes(":") ? `[${target.host}]` : target.host;
  return `postgresql://${user}@${host}:${target.port}/${database}`;
}

/**
 * Opens a connection of pg-task's own.
 *
 * @throws PgTaskError CONNECTION_FAILED when the server is not reached, CONNECTION_REJECTED with the
 * server's own words when it refuses, CONNECTION_POOLED when something stands between it and us.
 */
export async function connect(
  target: ConnectionTarget,
  options: {
    readonly applicationName: string;
    readonly settings?: StartupSettings;
    readonly pipeline?: boolean;
    /** Gives the attempt up: CONNECTION_FAILED. */
    readonly signal?: AbortSignal;
  },
): Promise<Client> {
  const encrypted = target.sslmode !== "disable" && !target.host.startsWith("/");
  if (!encrypted) return await open(target, options, false);
  if (target.sslmode === "allow") {
    try {
      return await open(target, options, false);
    } catch (error) {
      if (!(error instanceof PgTaskError) || error.code !== "CONNECTION_REJECTED") throw error;
      return await open(target, options, true);
    }
  }
  try {
    return await open(target, options, true);
  } catch (error) {
    const plainAllowed = target.sslmode === "prefer" && serverHasNoTls(error);
    if (!plainAllowed) throw error;
    return await open(target, options, false);
  }
}

async function open(
  target: ConnectionTarget,
  options: Parameters<typeof connect>[1],
  encrypted: boolean,
): Promise<Client> {
  const mark = randomBytes(8).toString("hex");
  const client = new Client({
    host: target.host,
    port: target.port,
    database: target.database,
    user: target.user,
    ...(target.password === undefined ? {} : { password: target.password }),
    ssl: encrypted ? await tlsOptions(target) : false,
    application_name: options.applicationName,
    options: startupOptions({ ...options.settings, [markSetting]: mark }),
    connectionTimeoutMillis: target.connectTimeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: 5_000,
    ...(options.pipeline ? { pipeline: true } : {}),
  });
  // The reason of a later loss reaches whoever waits for a query, or listens to "end".
  client.on("error", () => {});
  const giveUp = (): void => void client.connection.stream.destroy();
  options.signal?.addEventListener("abort", giveUp);
  try {
    options.signal?.throwIfAborted();
    await client.connect();
    await expectServer(client, target, mark);
  } catch (error) {
    void client.end().catch(() => {});
    throw error instanceof PgTaskError ? error : refusal(target, error);
  } finally {
    options.signal?.removeEventListener("abort", giveUp);
  }
  return client;
}

/** A setting of our own, by which a connection is known to be the one that was asked for. */
const markSetting = "pgtask.connection";

/**
 * A pooler's server process outlives us, and is somebody else's before and after: no lock of ours
 * and no death could be seen by it. Some announce another process than the one that answers (all
 * modes of PgBouncer), others hand on one that was started by another connection's settings.
 */
async function expectServer(client: Client, target: ConnectionTarget, mark: string): Promise<void> {
  const { rows } = await client.query<{ pid: number; mark: string | null }>({
    text: `SELECT pg_catalog.pg_backend_pid() AS pid, pg_catalog.current_setting('${markSetting}', true) AS mark`,
    ...(target.connectTimeoutMs > 0 ? { query_timeout: target.connectTimeoutMs } : {}),
  });
  const [row] = rows;
  // Some poolers announce none.
  const announced =
    "processID" in client && typeof client.processID === "number" ? client.processID : null;
  if (row?.pid !== announced) {
    throw pooled(target, `announced process ${announced ?? "none"}, was answered by ${row?.pid}`);
  }
  if (row?.mark !== mark) throw pooled(target, "did not get the settings it asked for");
}

function pooled(target: ConnectionTarget, what: string, cause?: unknown): PgTaskError {
  return new PgTaskError(
    "CONNECTION_POOLED",
    `expected the server itself at ${describeTarget(target)}, but a pooler such as PgBouncer is there ` +
      `(the connection ${what}): give the server's own address to pg-task; who inserts tasks may go ` +
      "on using the pooler",
    { cause },
  );
}

/** Has all that `send` sends before it returns leave in one write. */
export function inOneWrite<T>(client: Client, send: () => T): T {
  const { stream } = client.connection;
  stream.cork();
  try {
    return send();
  } finally {
    stream.uncork();
  }
}

/** How long the server may take to close a connection after our goodbye, in ms. */
const goodbyeMs = 2_000;

/** Ends a connection in order, or by itself where the server does not answer; never rejects. */
export async function disconnect(client: Client): Promise<void> {
  const timer = setTimeout(() => client.connection.stream.destroy(), goodbyeMs);
  await client.end().catch(() => {});
  clearTimeout(timer);
}

async function tlsOptions(target: ConnectionTarget): Promise<Record<string, unknown>> {
  const { readFile } = await import("node:fs/promises");
  const verify = target.sslmode === "verify-ca" || target.sslmode === "verify-full";
  return {
    rejectUnauthorized: verify,
    // verify-ca checks who signed the certificate, not whose name it bears.
    ...(target.sslmode === "verify-ca" ? { checkServerIdentity: () => undefined } : {}),
    ...(target.sslrootcert === undefined ? {} : { ca: await readFile(target.sslrootcert) }),
    ...(target.sslcert === undefined ? {} : { cert: await readFile(target.sslcert) }),
    ...(target.sslkey === undefined ? {} : { key: await readFile(target.sslkey) }),
  };
}

/** The startup packet's `options`: blanks and backslashes in a value are escaped with a backslash. */
function startupOptions(settings: StartupSettings): string {
  return Object.entries(settings)
    .map(([name, value]) => `-c ${name}=${String(value).replace(/[\\\s]/g, "\\$&")}`)
    .join(" ");
}

function serverHasNoTls(error: unknown): boolean {
  return (
    error instanceof PgTaskError &&
    error.cause instanceof Error &&
    error.cause.message === "The server does not support SSL connections"
  );
}

function refusal(target: ConnectionTarget, error: unknown): PgTaskError {
  const where = describeTarget(target);
  if (error instanceof DatabaseError) {
    // PostgreSQL itself has no such words: it names a parameter that it does not know.
    if (/unsupported (?:options )?startup parameter/i.test(error.message)) {
      return pooled(target, `was refused with "${error.message}"`, error);
    }
    return new PgTaskError(
      "CONNECTION_REJECTED",
      `the server refused the connection ${where}: ${error.message} (SQLSTATE ${error.code})`,
      { cause: error, ...(error.code === undefined ? {} : { sqlState: error.code }) },
    );
  }
  if (error instanceof Error && error.message.includes("client password must be")) {
    return new PgTaskError(
      "CONNECTION_REJECTED",
      `the server asks for a password, and none was given for ${where}: give one in the url, in PGPASSWORD or in a password file`,
      { cause: error },
    );
  }
  const at = target.host.startsWith("/")
    ? `${target.host}/.s.PGSQL.${target.port}`
    : `${target.host}, port ${target.port}`;
  return new PgTaskError(
    "CONNECTION_FAILED",
    `no connection to the server at ${at} (${where}): ${reason(error)}`,
    { cause: error },
  );
}

/** Node reports a host with several addresses as an AggregateError with an empty message. */
function reason(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(reason).join("; ");
  return error instanceof Error ? error.message : String(error);
}

/** SQLSTATE of an error the server sent, null for any other. */
export function sqlState(error: unknown): string | null {
  return error instanceof DatabaseError ? (error.code ?? null) : null;
}
