import { PgTaskError } from "../../errors.js";
import { LoginRefused } from "../auth/login.js";
import { unreachableError } from "../connectionErrors.js";
import { MissingPassword } from "../errors.js";
import { cannotConnectNow } from "../sqlStates.js";
import { onlyServer, serversOf, type ConnectionTarget, type TargetServer } from "./target.js";
import { resolveServer, shuffled, tryServers, type NextTry } from "./tryServers.js";
import type { Encryption } from "../transport/sslMode.js";
import { timeoutSignal } from "../../timeoutSignal.js";

interface Failure {
  readonly server: TargetServer;
  readonly error: PgTaskError;
}

/** Connects to the only server of its target, whose host name is resolved. */
type Connect<Connection> = (server: ConnectionTarget, encryption: Encryption) => Promise<Connection>;

/**
 * Connects to the first acceptable server of the target. The attempt ends at a server that refuses the login.
 *
 * @throws PgTaskError the error of `connect`. If several attempts failed, the message contains all reasons in the
 * order in which the servers are configured, so that the same situation always has the same message.
 */
export async function connectToFirst<Connection>(
  target: ConnectionTarget,
  signal: AbortSignal | undefined,
  connect: Connect<Connection>,
): Promise<Connection> {
  const servers = serversOf(target);
  const { sslmode, connectTimeoutMs: timeoutMs } = target;
  const inOrder = target.loadBalance === true ? shuffled : <T>(list: readonly T[]): readonly T[] => list;
  const outcome = await tryServers<Connection, Failure>(inOrder(servers), {
    sslmode,
    resolve: async (server) =>
      inOrder(await resolveServer(server, timeoutMs > 0 ? timeoutSignal(timeoutMs, signal) : signal)),
    unresolved: (error, server) => ({ server, error: unreachableError(onlyServer(target, server), error) }),
    connect: async (server, { address }, encryption) => {
      const resolved = onlyServer(target, address === null ? server : { ...server, address });
      try {
        return { connection: await connectWithPassword(resolved, (complete) => connect(complete, encryption)) };
      } catch (error) {
        if (!(error instanceof PgTaskError)) throw error;
        const canAddTls = sslmode === "allow" && encryption === "none" && address !== null;
        return { problem: { server, error }, next: nextTry(error, canAddTls) };
      }
    },
    reported: (problems) => problems.slice(-1),
  });
  if ("connection" in outcome) return outcome.connection;
  throw joinFailures(
    target,
    servers.map((server) => outcome.problems.filter((each) => each.server === server).map(({ error }) => error)),
  );
}

/** Reads the password file at each attempt, as libpq does, so that a corrected file is used. */
async function connectWithPassword<Connection>(
  target: ConnectionTarget,
  connect: (complete: ConnectionTarget) => Promise<Connection>,
): Promise<Connection> {
  const { passwordFile } = target;
  if (passwordFile === undefined) return await connect(target);
  const { findPassword, readPasswordFile } = await import("./passwordFile.js");
  const warnings: string[] = [];
  const text = await readPasswordFile(passwordFile, (warning) => warnings.push(warning));
  const { password: _, ...server } = target;
  const { host, port, database, user } = target;
  const password = text === null ? null : findPassword(text, { host, port, database, user });
  try {
    return await connect(password === null ? server : { ...server, password });
  } catch (error) {
    if (!(error instanceof PgTaskError) || error.code !== "CONNECTION_REJECTED") throw error;
    const { code, message, sqlState } = error;
    // The error for a missing password says it already.
    const unsaid = warnings.filter((warning) => !message.includes(warning));
    if (unsaid.length === 0) throw error;
    throw new PgTaskError(code, [message, ...unsaid].join("; "), { cause: error.cause, sqlState });
  }
}

/** Unlike libpq, pg-task never falls back to plaintext if the server offers TLS. */
function nextTry({ code, sqlState, cause }: PgTaskError, canAddTls: boolean): NextTry {
  if (code === "CONNECTION_FAILED") return "address";
  const isLogin = cause instanceof LoginRefused || cause instanceof MissingPassword;
  if (canAddTls && code === "CONNECTION_REJECTED" && isLogin) return "encryption";
  return code === "CONNECTION_READ_ONLY" || sqlState === cannotConnectNow ? "server" : "none";
}

/** Joins the errors of each server to one error. An error of a server that answered is more telling than the others. */
function joinFailures(target: ConnectionTarget, failures: readonly (readonly PgTaskError[])[]): PgTaskError {
  const errors = failures.flatMap((each, index) => joinAddresses(target, serversOf(target)[index], each));
  const [first] = errors;
  if (first === undefined) return new PgTaskError("INTERNAL", "no server was tried");
  if (errors.length === 1) return first;
  const { code, sqlState } = errors.find((error) => error.code !== "CONNECTION_FAILED") ?? first;
  return new PgTaskError(code, errors.map(({ message }) => message).join("; "), { cause: first, sqlState });
}

/** Joins the errors of a server's addresses if none of them could be reached. */
function joinAddresses(
  target: ConnectionTarget,
  server: TargetServer | undefined,
  errors: readonly PgTaskError[],
): readonly PgTaskError[] {
  const isUnreachable = errors.length > 1 && errors.every(({ code }) => code === "CONNECTION_FAILED");
  if (!isUnreachable || server === undefined) return errors;
  return [unreachableError(onlyServer(target, server), new AggregateError(errors.map(({ cause }) => cause)))];
}
