import { escapeLiteral } from "pg";
import { pause } from "../../shared/backoff.js";
import { PgTaskError } from "../../shared/errors.js";
import { ownerSql } from "../../shared/identity.js";
import { connectRemote, type RemoteConnection } from "./connect.js";
import { RemoteProblem } from "./problem.js";
import { Refusal } from "./login.js";
import type { RemoteTarget } from "./target.js";

/** How often the server is asked, in ms. */
const pauseMs = 500;

/** Largest message of the answer, in bytes. */
const messageLimit = 1 << 16;

/**
 * Resolves when the server says that the process of a lost connection is gone, so that what it ran
 * has no effect any more that it has not had; or on abort. While the server cannot be asked, or may
 * not say, that is not known.
 */
export async function awaitGone(
  target: RemoteTarget,
  connection: RemoteConnection,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    try {
      if (await isGone(target, connection, signal)) return;
    } catch (error) {
      const problems = [RemoteProblem, Refusal, PgTaskError];
      if (!signal.aborted && !problems.some((kind) => error instanceof kind)) throw error;
    }
    await pause(pauseMs, signal);
  }
}

async function isGone(
  target: RemoteTarget,
  { server, backend }: RemoteConnection,
  signal: AbortSignal,
): Promise<boolean> {
  const { wire } = await connectRemote(
    { ...target, servers: [server], sessionAttributes: "any" },
    { applicationName: "pg_task", messageLimit, signal },
  );
  const end = (): void => void wire.close();
  signal.addEventListener("abort", end, { once: true });
  try {
    // One whose start may not be seen counts as there.
    const answer = await wire.ask(
      "SELECT FROM pg_catalog.pg_stat_activity AS activity WHERE " +
        `activity.pid OPERATOR(pg_catalog.=) ${backend.pid} AND ` +
        `coalesce(${ownerSql("activity")} OPERATOR(pg_catalog.=) ${escapeLiteral(backend.owner)}, true)`,
    );
    if (answer.error !== null) throw new Refusal(answer.error);
    return answer.rows.length === 0;
  } finally {
    signal.removeEventListener("abort", end);
    await wire.close();
  }
}
