import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { GroupScanner } from "./groupScanner.js";
import type { ActiveGroups } from "./groups.js";
import { beginTurns, endTurns, readTurns, takeTurns } from "./turns.sql.js";

interface TurnComponents {
  readonly table: TaskTable;
  readonly groups: ActiveGroups;
  readonly groupScanner: GroupScanner;
}

/** Ids of tasks. */
export interface TurnTasks {
  /** Those that may run. */
  readonly running: readonly string[];
  /** These and those whose ends are not written yet. */
  readonly claimed: readonly string[];
  /** Due ones that the server refuses to claim. */
  readonly rejected: readonly string[];
  /** Due ones that claims leave out. */
  readonly skipped: readonly string[];
}

/**
 * Lets chains with `alone` run while nothing else of their group or table does. Each has a row in the table of turns:
 *
 *   due ──take──▶ waits for the end of what runs ──begin──▶ runs alone ──end──▶ gone
 *                     └─────────stopped, planned anew, paused──────end──────────▲
 *
 * As long as the row is there, no claim takes anything else of the group or table, nor any task of the chain before the
 * turn has begun. The row outlasts a manager, which may end between two steps of the chain.
 *
 * After the end of a turn, a cycle claims what else is due before the next turn is taken.
 */
export class Turns {
  readonly #components: TurnComponents;
  /** Null if it is not known how many turns there are. */
  #count: number | null = null;
  /** Whether others may start before the next turn is taken. */
  #yields = false;
  /** Whether a task of a chain that runs alone can be claimed. */
  #hasDue = false;

  constructor(components: TurnComponents) {
    this.#components = components;
  }

  /** On a new connection it is not known what has happened in the meantime. */
  restart(): void {
    this.#count = null;
  }

  /** The last manager has seen none. */
  settle(): void {
    this.#count = 0;
  }

  get hasAny(): boolean {
    return this.#count !== 0;
  }

  /** Ends, takes and begins turns. Returns whether there may be more to do at once. */
  async step(client: Client, readTasks: () => TurnTasks): Promise<boolean> {
    const { groups, groupScanner, table } = this.#components;
    if (this.#count === 0 && !this.#yields && !groupScanner.isAloneDue) return false;
    const { running, claimed, rejected, skipped } = readTasks();
    const ended = this.#count === 0 ? 0 : await endTurns(client, table, claimed, rejected);
    this.#yields ||= ended > 0;
    if (!this.#yields) {
      // Behind many chains of one group there may be one of another.
      while ((await takeTurns(client, table, rejected, groups.runningKeys.all)) > 0);
    }
    await beginTurns(client, table, running);
    const { count, due } = await readTurns(client, table, skipped);
    this.#count = count;
    this.#hasDue = due.length > 0;
    // A scan finds the first tasks of these groups, which may have to wait for them.
    for (const { hash, max, id } of due) groups.setHead(hash, { max, id: BigInt(id) }, false);
    if (ended > 0) groupScanner.markChanged();
    return ended > 0;
  }

  /** Called after the claims of a cycle. Returns whether the next cycle has to follow at once. */
  endCycle({ claimed, more }: { readonly claimed: number; readonly more: number }, hasEnded: boolean): boolean {
    if (this.#hasDue && claimed > 0) return true;
    if (!this.#yields || hasEnded || (claimed === 0 && more > 0)) return false;
    this.#yields = false;
    return this.#components.groupScanner.isAloneDue;
  }
}
