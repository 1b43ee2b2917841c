import { DatabaseError, type Client, type QueryResult, type QueryResultRow } from "pg";
import type { ConnectionTarget } from "./target/target.js";
import { pooledError, unreachableError, readOnlyError, rejectedError } from "./connectionErrors.js";
import { connectToFirst } from "./target/connectToFirst.js";
import { driverClients } from "./driverConnection.js";
import { openStream, type LoginOptions } from "./openStream.js";
import type { Encryption } from "./transport/sslMode.js";
import { PgTaskError } from "../errors.js";
import {
  expectNoPooler,
  neutralSettings,
  buildStartup,
  neutralProbeSql,
  readingProbeSql,
  type Startup,
  type StartupSettings,
  transactionSettingsSql,
} from "./startupOptions.js";

export type { Client };

/** A client, or a client of a pool. */
export interface Queryable {
  readonly query: <Row extends QueryResultRow>(
    text: string,
    values?: unknown[],
  ) => Promise<Pick<QueryResult<Row>, "rows" | "rowCount">>;
}

/**
 * Opens a connection for pg-task's own statements.
 *
 * @throws PgTaskError CONNECTION_FAILED if the server cannot be reached; CONNECTION_REJECTED with the server's message
 * if the server refuses the connection; CONNECTION_POOLED if a pooler answers; CONNECTION_READ_ONLY if the server is
 * not one of those that are wanted
 */
export async function connectClient(target: ConnectionTarget, options: ClientOptions): Promise<Client> {
  return await connectToFirst(target, options.signal, (server, encryption) => open(server, encryption, options));
}

interface ClientOptions extends Omit<LoginOptions, "options"> {
  readonly settings?: StartupSettings;
  readonly pipeline?: boolean;
  /** Whether text of an SQL_ASCII database that is not UTF-8 is received with U+FFFD. Otherwise it is an error. */
  readonly acceptsAnyText?: boolean;
  /**
   * Whether a pooler may answer. The settings then apply to each transaction, and statements must not rely on anything
   * else of the session, such as LISTEN or locks.
   */
  readonly acceptsPooler?: boolean;
  /** Whether the server must not be a standby, whatever `target_session_attrs` says. */
  readonly writable?: boolean;
}

const servers = new WeakMap<Client, ConnectionTarget>();

/** Returns the target with only the server and address to which this connection leads. */
export function serverOf(client: Client): ConnectionTarget {
  const server = servers.get(client);
  if (server === undefined) throw new PgTaskError("INTERNAL", "a connection whose server is unknown");
  return server;
}

async function open(target: ConnectionTarget, encryption: Encryption, options: ClientOptions): Promise<Client> {
  const startup = buildStartup({ ...ownSettings(target), ...options.settings });
  try {
    return await openClient(target, encryption, { options, startup });
  } catch (error) {
    const isPooled = error instanceof PgTaskError && error.code === "CONNECTION_POOLED";
    if (!isPooled || options.acceptsPooler !== true) throw error;
    return await openClient(target, encryption, { options, startup: null });
  }
}

/** @param startup the options of the session; null behind a pooler, which has sessions of its own */
async function openClient(
  target: ConnectionTarget,
  encryption: Encryption,
  { options, startup }: { readonly options: ClientOptions; readonly startup: Startup | null },
): Promise<Client> {
  const own = startup?.options ?? "";
  const DriverClient = driverClients((signal) => openStream(target, encryption, { ...options, options: own, signal }));
  const client = new DriverClient({ pipeline: options.pipeline === true });
  // A lost connection also rejects pending queries and emits "end", but only "error" carries the server's message.
  client.on("error", (error) => {
    if (error instanceof DatabaseError) closingErrors.set(client, error);
  });
  const abort = (): void => void client.connection.stream.destroy();
  options.signal?.addEventListener("abort", abort);
  try {
    options.signal?.throwIfAborted();
    await client.connect();
    const found =
      startup === null
        ? await adaptToPooler(client, target, options)
        : await expectOwnBackend(client, target, { startup, options });
    expectWanted(target, options, found);
  } catch (error) {
    void client.end().catch(() => {});
    if (error instanceof PgTaskError) throw error;
    if (!(error instanceof DatabaseError)) throw unreachableError(target, error);
    throw rejectedError(target, { message: error.message, code: error.code }, error);
  } finally {
    options.signal?.removeEventListener("abort", abort);
  }
  servers.set(client, target);
  return client;
}

/** A server whose sessions are not read-only may be wanted: its own setting for that must then not be overridden. */
function ownSettings({ sessionAttributes }: ConnectionTarget): StartupSettings {
  if (sessionAttributes !== "read-write") return neutralSettings;
  const { default_transaction_read_only: _, ...others } = neutralSettings;
  return others;
}

/** The error with which the server ended each connection. */
const closingErrors = new WeakMap<Client, DatabaseError>();

export function connectionLost(client: Client, whose: string): PgTaskError {
  const error = closingErrors.get(client);
  if (error === undefined) return new PgTaskError("CONNECTION_LOST", `${whose} connection ended`);
  const message = `the server ended ${whose} connection: ${error.message} (SQLSTATE ${error.code})`;
  return new PgTaskError("CONNECTION_LOST", message, { cause: error });
}

interface Probe {
  readonly pid: number;
  readonly mark: string | null;
  readonly standby: boolean;
  readonly readOnly: boolean;
}

export function backendPid(client: Client): number | null {
  return "processID" in client && typeof client.processID === "number" ? client.processID : null;
}

async function expectOwnBackend(
  client: Client,
  target: ConnectionTarget,
  { startup, options }: { readonly startup: Startup; readonly options: ClientOptions },
): Promise<Pick<Probe, "standby" | "readOnly">> {
  const { rows } = await client.query<Probe>({
    text: options.acceptsAnyText === true ? readingProbeSql(startup) : neutralProbeSql(startup),
    ...(target.connectTimeoutMs > 0 ? { query_timeout: target.connectTimeoutMs } : {}),
  });
  const announced = backendPid(client);
  const [probe] = rows;
  expectNoPooler(target, announced, { pid: probe?.pid, mark: probe?.mark }, startup);
  return { standby: probe?.standby === true, readOnly: probe?.readOnly === true };
}

async function adaptToPooler(
  client: Client,
  target: ConnectionTarget,
  { settings }: ClientOptions,
): Promise<Pick<Probe, "standby" | "readOnly">> {
  // PgBouncer in statement mode refuses transactions.
  await client.query("BEGIN").catch((error: unknown) => {
    throw isServerError(error) ? pooledError(target, `was refused with "${error.message}"`, error) : error;
  });
  const { rows } = await client.query<Pick<Probe, "standby">>("SELECT pg_catalog.pg_is_in_recovery() AS standby");
  await client.query("COMMIT");
  const standby = rows[0]?.standby === true;
  settingsPerTransaction(client, { ...ownSettings(target), ...settings }, standby);
  return { standby, readOnly: false };
}

/** @throws PgTaskError CONNECTION_READ_ONLY */
function expectWanted(
  target: ConnectionTarget,
  { settings, writable }: ClientOptions,
  { standby, readOnly }: Pick<Probe, "standby" | "readOnly">,
): void {
  const { sessionAttributes = "any" } = target;
  if (standby && (writable === true || sessionAttributes !== "any")) throw readOnlyError(target, "standby");
  const isOwnChoice = settings?.["default_transaction_read_only"] !== undefined;
  if (readOnly && sessionAttributes === "read-write" && !isOwnChoice) throw readOnlyError(target, "session");
}

export function inOneWrite<T>(client: Client, send: () => T): T {
  const { stream } = client.connection;
  stream.cork();
  try {
    return send();
  } finally {
    stream.uncork();
  }
}

const terminateMs = 2_000;

/** Never rejects. If the server does not answer, the connection is destroyed. */
export async function disconnect(client: Client): Promise<void> {
  const timer = setTimeout(() => client.connection.stream.destroy(), terminateMs);
  await client.end().catch(() => {});
  clearTimeout(timer);
}

/** Destroying the socket makes `work` reject, also on a half-open connection, on which a query would never end. */
export async function destroyOnAbort<T>(
  signal: AbortSignal,
  client: Client,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const destroy = (): void => void client.connection.stream.destroy();
  signal.addEventListener("abort", destroy);
  try {
    if (signal.aborted) destroy();
    return await work(client);
  } finally {
    signal.removeEventListener("abort", destroy);
  }
}

/** Returns the SQLSTATE of a server error, or null for any other error. */
export function sqlState(error: unknown): string | null {
  return isServerError(error) ? (error.code ?? null) : null;
}

/** Whether the server reported this error. Its class can come from another copy of the pg driver. */
export function isServerError(error: unknown): error is DatabaseError {
  if (error instanceof DatabaseError) return true;
  return error instanceof Error && "severity" in error && "code" in error && typeof error.code === "string";
}

/**
 * Makes each statement a transaction of its own that begins with the settings, unless the caller has begun one: a
 * pooler may give every transaction another session, with the settings of other clients.
 */
function settingsPerTransaction(client: Client, settings: StartupSettings, isStandby: boolean): void {
  const send = client.query.bind(client) as (...query: unknown[]) => Promise<unknown>;
  const isolation = "BEGIN ISOLATION LEVEL READ COMMITTED";
  const begin = `${isolation}${isStandby ? "" : " READ WRITE"}; ${transactionSettingsSql(settings)}`;
  let isOpen = false;
  const run = async (query: readonly unknown[]): Promise<unknown> => {
    const [text] = query;
    const command =
      typeof text === "string" ? /^(?:BEGIN|COMMIT|ROLLBACK)(?= READ WRITE$| READ ONLY$|$)/.exec(text)?.[0] : undefined;
    if (command !== undefined) isOpen = command === "BEGIN";
    if (command !== "BEGIN" && (isOpen || command !== undefined)) return await send(...query);
    try {
      const begun = await send(begin);
      if (command === "BEGIN") return begun;
      const result = await send(...query);
      await send("COMMIT");
      return result;
    } catch (error) {
      isOpen = false;
      // It fails only if the connection is lost.
      await send("ROLLBACK").catch(() => {});
      throw error;
    }
  };
  // Statements that are sent at once would otherwise mix their transactions.
  let last: Promise<unknown> = Promise.resolve();
  const query = (...given: unknown[]): Promise<unknown> => {
    const result = last.then(() => run(given));
    last = result.catch(() => {});
    return result;
  };
  Object.assign(client, { query });
}
