import type { Client } from "pg";
import { transactionSettingsSql, type StartupSettings } from "./startupOptions.js";

/**
 * Makes each statement a transaction of its own that begins with the settings, unless the caller has begun one: a
 * pooler may give every transaction another session, with the settings of other clients.
 */
export function settingsPerTransaction(client: Client, settings: StartupSettings, isStandby: boolean): void {
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
