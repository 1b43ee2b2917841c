/** What pg-task needs of a client of the `pg` driver: a Client, or a client of a Pool. */
export interface SqlClient {
  /** Sends a statement. */
  query(text: string, values?: unknown[]): Promise<SqlResult>;
  /** Only a Pool has this. A Pool is no client, because it sends each statement over any of its connections. */
  readonly totalCount?: never;
}

/** The result of a statement. */
export interface SqlResult {
  /** The rows. */
  readonly rows: unknown[];
  /** Number of rows that the statement has read or changed. */
  readonly rowCount: number | null;
}

/** A client that belongs to a pool. */
export interface SqlPoolClient extends SqlClient {
  /** Returns the client to its pool, or closes its connection. */
  release(destroy?: boolean): void;
}

/** What pg-task needs of a Pool of the `pg` driver. */
export interface SqlPool {
  /** Takes a client out of the pool. */
  connect(): Promise<SqlPoolClient>;
  /** Number of clients that are open or connecting. */
  readonly totalCount: number;
  /** Number of clients that nobody uses. */
  readonly idleCount: number;
  /** Number of requests that wait for a client. */
  readonly waitingCount: number;
}
