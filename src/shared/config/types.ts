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
   * Whether the entry itself gives the target's password. Only such a password is set for a role that pg-task creates.
   * False if the password comes from PGPASSWORD, the control connection or the password file.
   */
  readonly ownPassword: boolean;
  /**
   * Why the entry cannot be used: the environment variable of its password is not set. Only a configuration that was
   * loaded with `lazySecrets` has such entries.
   */
  readonly missingPassword?: string;
  /** Whether the entry has a URL of its own, so its table can be on another server than the control database. */
  readonly elsewhere: boolean;
  /**
   * Schema of the table according to the configuration. Settings of the role, the database or the server can name
   * another schema and table.
   */
  readonly schema: string;
  readonly table: string;
  /** Whether a missing schema, type and table are created. */
  readonly create: boolean;
  /** Whether a missing role and database are created. */
  readonly createRoleAndDatabase: boolean;
  /** Values of all parameters: the entry's own values, and the file's values for all others. */
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
