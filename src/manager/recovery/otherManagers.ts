import { sleep } from "../../shared/backoff.js";
import type { Entry } from "../../shared/config/types.js";
import type { ManagerParameters } from "../../shared/ipc/managerMessages.js";
import type { Log } from "../../shared/log.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";
import { isManagerSql } from "../../shared/postgres/applicationNames.js";
import type { Client } from "../../shared/postgres/client.js";
import { FrozenHolder } from "../../shared/postgres/frozenHolder.js";
import { openRollCall } from "../../shared/postgres/rollCall.js";
import { frozenManagerMs, ownerCheckMs, ownersAskMs } from "../model/tuning.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { OrphanRescuer } from "./orphanRescuer.js";

export const rollCallChannel = (tableOid: number): string => `pg_work_${tableOid}`;

interface OtherManagersComponents {
  readonly table: TaskTable;
  readonly entry: Entry;
  readonly circumstances: Pick<ManagerParameters, "afterFrozen">;
  readonly orphans: Pick<OrphanRescuer, "foreignOwners" | "endForeignOwners">;
  readonly log: Log;
}

/**
 * The other processes that serve the same table, or that have served it and finish their tasks. If some of them are
 * frozen, their connections are ended: that of the manager that holds the table's lock, and those of sessions with tasks.
 * A session does not show to which process it belongs, so sessions are ended only if no other process answers at all.
 */
export class OtherManagers {
  readonly #client: Client;
  readonly #components: OtherManagersComponents;
  /** Who holds the table's lock. */
  readonly holder: FrozenHolder;
  #askAll: () => Promise<void> = async () => {};
  #hasAnswered = false;
  #isWatching = false;
  /** Whether it is known that a process was frozen. */
  #afterFrozen: boolean;
  readonly #ending = new AbortController();

  private constructor(client: Client, oid: number, components: OtherManagersComponents) {
    this.#client = client;
    this.#components = components;
    this.#afterFrozen = components.circumstances.afterFrozen === true;
    this.holder = new FrozenHolder(client, () => this.#askAll(), {
      lock: { class: lockClasses.manager, key: String(oid) },
      isPgTaskSql: isManagerSql,
      frozenMs: () => this.#limitMs,
      lines: {
        ended: "manager does not answer, its connection was ended",
        refused: "manager does not answer, and this role may not end its connection",
        foreign: "a session of another role or program holds the table's lock",
        foreignEnded: "a session of another role and program held the table's lock, it was ended",
      },
      fields: { table: components.table.qualified },
      ended: () => (this.#afterFrozen = true),
      log: components.log,
    });
  }

  /**
   * Starts to answer other managers on this connection.
   *
   * @param isPresent whether this manager serves the table or still has sessions that run its tasks
   */
  static async attach(
    client: Client,
    oid: number,
    components: OtherManagersComponents,
    isPresent: () => boolean,
  ): Promise<OtherManagers> {
    const others = new OtherManagers(client, oid, components);
    others.#askAll = await openRollCall(client, rollCallChannel(oid), {
      isPresent,
      answered: (pid) => others.#answered(pid),
    });
    return others;
  }

  /** Watches the sessions of other processes, as long as there are any that have tasks. */
  watchOwners(): void {
    if (this.#isWatching || this.#components.orphans.foreignOwners.length === 0) return;
    this.#isWatching = true;
    // An error ends the connection, whose loss is reported elsewhere.
    this.#watch()
      .catch(() => {})
      .finally(() => (this.#isWatching = false));
  }

  detach(): void {
    this.#ending.abort();
  }

  /** A process that is known to be frozen need not be given much time again. */
  get #limitMs(): number {
    const { "pg_conf.frozen": frozenMs } = this.#components.entry.parameters;
    return this.#afterFrozen ? Math.min(frozenMs, frozenManagerMs) : frozenMs;
  }

  #answered(pid: number): void {
    this.#hasAnswered = true;
    this.holder.answered(pid);
  }

  async #watch(): Promise<void> {
    const { orphans } = this.#components;
    while (!this.#ending.signal.aborted && orphans.foreignOwners.length > 0 && this.#limitMs > 0) {
      this.#hasAnswered = false;
      await this.#askAll();
      let waitedMs = 0;
      while (waitedMs < this.#limitMs && (await sleep(ownerCheckMs, this.#ending.signal))) {
        // Counted in steps, so that time in which this process itself was suspended does not count.
        waitedMs += ownerCheckMs;
        if (orphans.foreignOwners.length === 0) return;
      }
      if (this.#ending.signal.aborted) return;
      if (this.#hasAnswered) await sleep(ownersAskMs, this.#ending.signal);
      else await orphans.endForeignOwners(this.#client);
    }
  }
}
