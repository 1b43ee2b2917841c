import { readFile } from "node:fs/promises";
import { Client, DatabaseError } from "pg";
import type { ConnectionTarget } from "../config/types.js";
import { notReached, rejected, withoutPassword } from "./connectionErrors.js";
import { PgTaskError } from "../errors.js";
import {
  expectServer,
  plainSettings,
  startupWith,
  whoAnswersPlainlySql,
  type Startup,
  type StartupSettings,
} from "./startupOptions.js";

export type { Client };

/**
 * Opens a connection of pg-task's own.
 *
 * @throws PgTaskError CONNECTION_FAILED when the server is not reached, CONNECTION_REJECTED with the
 * server's own words when it refuses, CONNECTION_POOLED when something stands between it and us.
 */
export async function connectClient(
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

const askedForPassword = new WeakSet<Client>();

/** Whether the server asked for a password when the connection was made. */
export const wasAskedForPassword = (client: Client): boolean => askedForPassword.has(client);

/** As the driver calls the server's ways to ask. */
const passwordRequests = [
  "authenticationCleartextPassword",
  "authenticationMD5Password",
  "authenticationSASL",
];

async function open(
  target: ConnectionTarget,
  options: Parameters<typeof connectClient>[1],
  encrypted: boolean,
): Promise<Client> {
  const startup = startupWith({ ...plainSettings, ...options.settings });
  const client = new Client({
    host: target.host,
    port: target.port,
    database: target.database,
    user: target.user,
    ...(target.password === undefined ? {} : { password: target.password }),
    ssl: encrypted ? await tlsOptions(target) : false,
    application_name: options.applicationName,
    options: startup.options,
    connectionTimeoutMillis: target.connectTimeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: 5_000,
    ...(options.pipeline ? { pipeline: true } : {}),
  });
  // A loss reaches whoever waits for a query, or listens to "end"; the server's own words for it only come here.
  client.on("error", (error) => {
    if (error instanceof DatabaseError) lastWords.set(client, error);
  });
  for (const request of passwordRequests) {
    client.connection.once(request, () => void askedForPassword.add(client));
  }
  const giveUp = (): void => void client.connection.stream.destroy();
  options.signal?.addEventListener("abort", giveUp);
  try {
    options.signal?.throwIfAborted();
    await client.connect();
    await expectItself(client, target, startup);
  } catch (error) {
    void client.end().catch(() => {});
    throw error instanceof PgTaskError ? error : failure(target, error);
  } finally {
    options.signal?.removeEventListener("abort", giveUp);
  }
  return client;
}

/** What the server said to connections that it ended. */
const lastWords = new WeakMap<Client, DatabaseError>();

/** A connection that is gone, with the server's own words where it has said why. */
export function connectionLost(client: Client, whose: string): PgTaskError {
  const words = lastWords.get(client);
  if (words === undefined) return new PgTaskError("CONNECTION_LOST", `${whose} connection ended`);
  const message = `the server ended ${whose} connection: ${words.message} (SQLSTATE ${words.code})`;
  return new PgTaskError("CONNECTION_LOST", message, { cause: words });
}

async function expectItself(
  client: Client,
  target: ConnectionTarget,
  startup: Startup,
): Promise<void> {
  const { rows } = await client.query<{ pid: number; mark: string | null }>({
    text: whoAnswersPlainlySql,
    ...(target.connectTimeoutMs > 0 ? { query_timeout: target.connectTimeoutMs } : {}),
  });
  const announced =
    "processID" in client && typeof client.processID === "number" ? client.processID : null;
  expectServer(target, announced, { pid: rows[0]?.pid, mark: rows[0]?.mark }, startup);
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
  const verify = target.sslmode === "verify-ca" || target.sslmode === "verify-full";
  return {
    rejectUnauthorized: verify,
    // verify-ca checks who signed the certificate, not whose name it bears.
    ...(target.sslmode === "verify-ca" ? { checkServerIdentity: () => undefined } : {}),
    ...(await fileOf(target, "sslrootcert", "ca")),
    ...(await fileOf(target, "sslcert", "cert")),
    ...(await fileOf(target, "sslkey", "key")),
  };
}

async function fileOf(
  target: ConnectionTarget,
  word: "sslrootcert" | "sslcert" | "sslkey",
  option: string,
): Promise<Record<string, Buffer>> {
  const path = target[word];
  if (path === undefined) return {};
  try {
    return { [option]: await readFile(path) };
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unreadable";
    throw notReached(
      target,
      new Error(`${word} "${path}" cannot be read: ${code}`, { cause: error }),
    );
  }
}

function serverHasNoTls(error: unknown): boolean {
  return (
    error instanceof PgTaskError &&
    error.cause instanceof Error &&
    error.cause.message === "The server does not support SSL connections"
  );
}

function failure(target: ConnectionTarget, error: unknown): PgTaskError {
  if (error instanceof DatabaseError) {
    return rejected(target, { message: error.message, code: error.code }, error);
  }
  if (error instanceof Error && error.message.includes("client password must be")) {
    return withoutPassword(target, error);
  }
  return notReached(target, error);
}

/** SQLSTATE of an error the server sent, null for any other. */
export function sqlState(error: unknown): string | null {
  return error instanceof DatabaseError ? (error.code ?? null) : null;
}
