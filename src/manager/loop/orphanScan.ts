import type { Client } from "../../shared/postgres/client.js";
import type { OwnedRow } from "../recovery/rescue.sql.js";
import type { ManagerComponents } from "./components.js";
import { falseIfTransient } from "./upkeep.js";

interface OrphanScanOptions {
  /** Whether the table was asleep: then nobody can have left tasks running. */
  readonly isWoken: boolean;
  /** Called when the orphans have been checked. */
  readonly checked: () => void;
  /** Called when tasks have been rescued, which may be due now. */
  readonly rescued: () => void;
}

/** Looks for tasks whose sessions are gone, when the manager begins and then every `reset`, and rescues them. */
export class OrphanScan {
  readonly #components: ManagerComponents;
  readonly #options: OrphanScanOptions;
  #scannedAt: number;
  #areSettingsKnown = false;

  constructor(components: ManagerComponents, options: OrphanScanOptions) {
    this.#components = components;
    this.#options = options;
    this.#scannedAt = options.isWoken ? performance.now() : 0;
  }

  /** All rows may have changed. */
  restart(): void {
    this.#scannedAt = 0;
    this.#areSettingsKnown = false;
  }

  /** No task is claimed before it is known which tasks are running. Returns false after a transient error. */
  async run(client: Client): Promise<boolean> {
    const { knownSettings, orphans, settingsAge } = this.#components;
    return await falseIfTransient(async () => {
      // The settings are compared for the first time before any session is opened.
      if (!this.#areSettingsKnown) await settingsAge.compare(client);
      this.#areSettingsKnown = true;
      if (this.#scannedAt === 0 || performance.now() - this.#scannedAt > knownSettings.resetMs) {
        await orphans.scan(client, (row) => this.#isKnown(row));
        this.#scannedAt = performance.now();
      }
      if (orphans.size > 0) await this.#rescue(client);
      return true;
    });
  }

  async #rescue(client: Client): Promise<void> {
    const { dependencies, knownSettings, lanes, orphans, poolScaler, sessions, statistics } = this.#components;
    const { batch, crash: crashes } = knownSettings;
    // `grow` must not be called with 0 tasks here: that would withdraw the request for sessions that the next claim
    // needs.
    const openSessions = async (tasks: number): Promise<void> => {
      const more = lanes.isUsed ? 0 : tasks - sessions.free;
      if (!this.#components.isDraining && more > 0) await poolScaler.grow(client, more);
    };
    // Starting a thread can take longer than the server needs to notice that a backend is gone.
    await openSessions(orphans.takeLostCount());
    const rescued = await orphans.check(client, { crashes, batch, isKnown: (row) => this.#isKnown(row) });
    this.#options.checked();
    statistics.rescued(orphans.takeOutcomes());
    if (rescued === 0) return;
    dependencies.tableChanged();
    this.#options.rescued();
    await openSessions(rescued);
  }

  /**
   * Whether a claimed row needs no rescue. If the connection was lost before a claim was answered, its tasks belong to
   * sessions that are alive but never got them. Such tasks are released.
   */
  #isKnown(row: OwnedRow): boolean {
    const { sessions, pendingResults } = this.#components;
    // A row can have another owner than the one that is known here, for example after a failover to a server that has
    // not received the last claim of the task.
    if (sessions.hasTask(row) || pendingResults.has(row)) return true;
    if (!sessions.owners.includes(row.owner)) return false;
    pendingResults.released.requeue([{ id: row.id, owner: row.owner }]);
    return true;
  }
}
