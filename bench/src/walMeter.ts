import { one, type Database } from "./database.js";

/** Measures how much write-ahead log the server writes. Nothing else may use the server meanwhile. */
export class WalMeter {
  #database: Database | null = null;
  #before = 0;
  #after = 0;

  async begin(database: Database): Promise<void> {
    this.#database = database;
    this.#before = await position(database);
  }

  async end(): Promise<void> {
    if (this.#database !== null) this.#after = await position(this.#database);
  }

  get bytes(): number {
    return this.#after - this.#before;
  }
}

async function position({ client }: Database): Promise<number> {
  const { bytes } = await one<{ bytes: string }>(
    client,
    "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS bytes",
  );
  return Number(bytes);
}
