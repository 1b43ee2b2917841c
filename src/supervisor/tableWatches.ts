import type { Log } from "../shared/log.js";
import { shareServer, type ConnectionTarget } from "../shared/postgres/target/target.js";
import { WatchConnection } from "./watchConnection.js";

/** The same for tables that one connection can watch. */
export const watchKey = (target: ConnectionTarget): string =>
  JSON.stringify({ ...target, authMethods: [...(target.authMethods ?? [])] });

/** The connections that watch sleeping tables: one for each server, database and user. */
export class TableWatches {
  readonly #log: Log;
  readonly #connections = new Map<
    string,
    { readonly target: ConnectionTarget; readonly connection: WatchConnection }
  >();

  constructor(log: Log) {
    this.#log = log;
  }

  /** Returns the connection for tables that are reached like this. It is opened with its first table. */
  of(target: ConnectionTarget): WatchConnection {
    const key = watchKey(target);
    const known = this.#connections.get(key);
    if (known !== undefined) return known.connection;
    const connection = new WatchConnection(target, {
      log: this.#log,
      closed: () => void this.#connections.delete(key),
    });
    this.#connections.set(key, { target, connection });
    return connection;
  }

  retryOnServer(target: ConnectionTarget): void {
    this.#each(target, (connection) => connection.retryNow());
  }

  probeOnServer(target: ConnectionTarget): void {
    this.#each(target, (connection) => connection.probe());
  }

  #each(on: ConnectionTarget, act: (connection: WatchConnection) => void): void {
    for (const { target, connection } of this.#connections.values()) if (shareServer(target, on)) act(connection);
  }
}
