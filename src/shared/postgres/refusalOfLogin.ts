import { PgTaskError, toReport, type ErrorReport } from "../errors.js";
import { connectClient, disconnect } from "./client.js";
import type { ConnectionTarget } from "./target/target.js";

/** Connects and disconnects. Returns why the server refuses the login, or null if it does not. Throws other errors. */
export async function refusalOfLogin(
  target: ConnectionTarget,
  applicationName: string,
  signal: AbortSignal,
): Promise<ErrorReport | null> {
  try {
    await disconnect(await connectClient(target, { applicationName, signal }));
    return null;
  } catch (error) {
    if (error instanceof PgTaskError && error.code === "CONNECTION_REJECTED") return toReport(error);
    throw error;
  }
}
