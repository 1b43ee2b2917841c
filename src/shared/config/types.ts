import type { ConnectionTarget } from "../postgres/target/target.js";
import type { FileParameters } from "./parameterTable.js";

/** Schema and name of a task table, not quoted for SQL. */
export interface TableLocation {
  readonly schema: string;
  readonly table: string;
}

/** One resolved entry of `pg_task.json`: a task table, which one manager serves. */
export interface Entry {
  /** Stable identity of the task table, made of server, database, schema and table. */
  readonly key: string;
  readonly target: ConnectionTarget;
  /**
   * Whether the entry itself gives the target's password. Only then is the password set for a role that is created for
   * the entry. False if the password comes from PGPASSWORD, the control connection or the password file.
   */
  readonly ownPassword: boolean;
  /** Whether the entry has its own URL, so it can be on a different server than the control connection. */
  readonly elsewhere: boolean;
  /** Schema of the table in the configuration. The server's settings can name another schema and table. */
  readonly schema: string;
  readonly table: string;
  readonly create: boolean;
  /** The file's parameters, with the entry's own values in place of the file's. */
  readonly parameters: FileParameters;
  /** Values of the entry's short keys, which override every other level. */
  readonly fixed: {
    readonly sleep?: number;
    readonly reset?: string;
    readonly run?: number;
    readonly schema?: string;
    readonly table?: string;
  };
}

/** A complete, valid configuration. */
export interface Configuration {
  /** Absolute path of the configuration file; null if there is none. */
  readonly file: string | null;
  /** The control connection. Its database holds the supervisor's lock. */
  readonly control: ConnectionTarget;
  readonly parameters: FileParameters;
  readonly entries: readonly Entry[];
}
