import { isDeepStrictEqual } from "node:util";
import type { Entry } from "../../shared/config/types.js";
import { WebProblem } from "../errors.js";
import { WebTable } from "./webTable.js";

/** The tables of the configuration, as it is now. */
export class WebTables {
  #tables: readonly WebTable[] = [];
  readonly #closing = new Set<Promise<void>>();
  readonly #followers = new Set<() => void>();

  get all(): readonly WebTable[] {
    return this.#tables;
  }

  /** Goes by these entries from now on; connections of others are closed. */
  use(entries: readonly Entry[]): void {
    const tables = this.#tables;
    const before = new Map(tables.map((table) => [table.key, table]));
    this.#tables = entries.map((entry) => {
      const known = before.get(entry.key);
      if (known !== undefined && isDeepStrictEqual(known.entry.target, entry.target)) {
        before.delete(entry.key);
        return known;
      }
      return new WebTable(entry, known?.history);
    });
    for (const table of before.values()) this.#close(table);
    const same =
      tables.length === this.#tables.length &&
      tables.every((table, place) => table === this.#tables[place]);
    if (!same) for (const changed of this.#followers) changed();
  }

  /** Calls `changed` when there are other tables, or none any more; the function returned ends that. */
  follow(changed: () => void): () => void {
    this.#followers.add(changed);
    return () => void this.#followers.delete(changed);
  }

  /** @throws WebProblem NOT_FOUND */
  byId(id: string): WebTable {
    const table = this.#tables.find((each) => each.id === id);
    if (table === undefined) throw new WebProblem("NOT_FOUND", "there is no table of that id");
    return table;
  }

  byKey(key: string): WebTable | null {
    return this.#tables.find((each) => each.key === key) ?? null;
  }

  async close(): Promise<void> {
    for (const table of this.#tables) this.#close(table);
    for (const changed of this.#followers) changed();
    await Promise.all(this.#closing);
  }

  #close(table: WebTable): void {
    const closing = table.close().finally(() => this.#closing.delete(closing));
    this.#closing.add(closing);
  }
}
