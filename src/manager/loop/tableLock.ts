import { sleep } from "../../shared/backoff.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";
import type { Client } from "../../shared/postgres/client.js";
import type { OtherManagers } from "../recovery/otherManagers.js";
import type { ManagerComponents } from "./components.js";

/** How often the manager tries to take the table lock while another manager holds it, in ms. */
const retryMs = 100;

/**
 * The time after which another manager that still holds the table's lock is named in the log, in ms. A manager that
 * stops hands its table over within a second or two, unless a lock keeps it from writing results.
 */
const longWaitMs = 10_000;

/**
 * Waits for the table lock. `isLocked` is false if the manager is draining and does not have it, `hasWaited` tells whether
 * another manager had it.
 */
export async function lockTable(
  client: Client,
  components: ManagerComponents,
  oid: number,
  others: OtherManagers,
): Promise<{ readonly isLocked: boolean; readonly hasWaited: boolean }> {
  const { ending, log, send, table } = components;
  let waitedMs = 0;
  for (let tries = 0; !components.isDraining; tries += 1) {
    if (await tryLock(client, lockClasses.manager, oid)) return { isLocked: true, hasWaited: tries > 0 };
    if (tries === 0) {
      const message = "another manager holds the lock of the table, waiting";
      log.info({ table: table.logName }, message);
      send({ type: "unavailable", reason: { code: "LEADERSHIP_HELD", message } });
    }
    if (!(await sleep(retryMs, ending.signal))) continue;
    await others.holder.check(retryMs);
    waitedMs += retryMs;
    if (waitedMs === longWaitMs) await logHolder(components, others);
  }
  return { isLocked: false, hasWaited: true };
}

/** Tries to take the table's lock of this class. Oids are unsigned, but lock keys are signed. */
export async function tryLock(client: Client, lockClass: number, oid: number): Promise<boolean> {
  const { rows } = await client.query<{ locked: boolean }>({
    name: "try lock",
    text: "SELECT pg_try_advisory_lock($1, $2) AS locked",
    values: [lockClass, oid | 0],
  });
  return rows[0]?.locked === true;
}

export async function unlock(client: Client, lockClass: number, oid: number): Promise<void> {
  await client.query({ name: "unlock", text: "SELECT pg_advisory_unlock($1, $2)", values: [lockClass, oid | 0] });
}

async function logHolder({ log, table }: ManagerComponents, others: OtherManagers): Promise<void> {
  const holder = await others.holder.find();
  // A session that is no manager has been named already.
  if (holder?.isPgTask !== true) return;
  const { pid: backend, name, address } = holder;
  const remedy =
    "end one of the two: this is probably another pg-task with the same entry, and another control database or pg_conf.name";
  log.warn({ table: table.logName, backend, application: name, address, remedy }, "another manager keeps the table");
}
