import { isDeepStrictEqual } from "node:util";
import type { Configuration } from "../../shared/config/types.js";
import { ApiError } from "../errors.js";
import { WebTable } from "./webTable.js";

export class WebTables {
  readonly #refusalOf: (key: string) => string | null;
  #tables: readonly WebTable[] = [];
  readonly #closing = new Set<Promise<void>>();
  readonly #listeners = new Set<() => void>();

  /** @param refusalOf why nothing may connect to the database of the entry with this key, or null */
  constructor(refusalOf: (key: string) => string | null) {
    this.#refusalOf = refusalOf;
  }

  get all(): readonly WebTable[] {
    return this.#tables;
  }

  /** Keeps each table whose entry still exists and has the same target, and closes all others. */
  setEntries({ entries, control }: Pick<Configuration, "entries" | "control">): void {
    const previous = this.#tables;
    const unused = new Map(previous.map((table) => [table.key, table]));
    this.#tables = entries.map((entry) => {
      const known = unused.get(entry.key);
      const refusal = this.#refusalOf(entry.key);
      if (known?.refusal === refusal && isDeepStrictEqual(known.entry.target, entry.target)) {
        unused.delete(entry.key);
        return known;
      }
      // Without entries in the file, the only entry has the control connection's target.
      return new WebTable(entry, { isControl: entry.target === control, history: known?.history, refusal });
    });
    for (const table of unused.values()) this.#close(table);
    const isSame =
      previous.length === this.#tables.length && previous.every((table, index) => table === this.#tables[index]);
    if (!isSame) for (const listener of this.#listeners) listener();
  }

  /** Also called when the tables are closed. Returns a function that removes the listener. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** @throws ApiError NOT_FOUND */
  byId(id: string): WebTable {
    const table = this.#tables.find((each) => each.id === id);
    if (table === undefined) throw new ApiError("NOT_FOUND", "there is no table with this id");
    return table;
  }

  byKey(key: string): WebTable | null {
    return this.#tables.find((each) => each.key === key) ?? null;
  }

  async close(): Promise<void> {
    for (const table of this.#tables) this.#close(table);
    for (const listener of this.#listeners) listener();
    await Promise.all(this.#closing);
  }

  #close(table: WebTable): void {
    const closing = table.close().finally(() => this.#closing.delete(closing));
    this.#closing.add(closing);
  }
}
