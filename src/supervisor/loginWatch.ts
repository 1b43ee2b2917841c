import { sleep } from "../shared/backoff.js";
import { errorMessage, type ErrorReport } from "../shared/errors.js";
import type { Log } from "../shared/log.js";
import { applicationNames } from "../shared/postgres/applicationNames.js";
import { refusalOfLogin } from "../shared/postgres/refusalOfLogin.js";
import type { ConnectionTarget } from "../shared/postgres/target/target.js";

/** Time between two checks while the server accepts the login, and while it refuses it, in ms. */
export const loginCheckMs = { accepted: 5 * 60_000, refused: 30_000 };

interface LoginWatchOptions {
  readonly times: typeof loginCheckMs;
  readonly signal: AbortSignal;
  readonly log: Log;
  /** The server refuses the login for another reason, or (null) accepts it again. */
  readonly changed: (refusal: ErrorReport | null) => void;
}

/**
 * Checks from time to time whether the server accepts the login of managers whose tables sleep: a changed password does
 * not end the connection that watches them. Resolves when `signal` is aborted, and never rejects.
 */
export async function watchLogin(target: ConnectionTarget, options: LoginWatchOptions): Promise<void> {
  const { times, signal, log, changed } = options;
  const { database } = target;
  let known: string | null = null;
  while (await sleep(known === null ? times.accepted : times.refused, signal)) {
    try {
      const refusal = await refusalOfLogin(target, applicationNames.managerLogin, signal);
      const reason = refusal?.message ?? null;
      if (signal.aborted || reason === known) continue;
      known = reason;
      if (refusal === null) log.info({ database }, "the server accepts new sessions again");
      else log.warn({ database, code: refusal.code, reason }, "the server refuses new sessions");
      changed(refusal);
    } catch (error) {
      log.debug({ database, reason: errorMessage(error) }, "login check failed");
    }
  }
}
