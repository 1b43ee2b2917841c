import type { ConnectionTarget } from "../postgres/target/target.js";
import type { FileParameters } from "./parameterTable.js";

export interface TableLocation {
  readonly schema: string;
  readonly table: string;
}

export interface Entry {
  /** Identifies the task table: server, database, schema and table. */
  readonly key: string;
  readonly target: ConnectionTarget;
  /** Whether the entry itself gives the password. Only such a password is set for a role that pg-task creates. */
  readonly ownPassword: boolean;
  /** Why the entry cannot be used: its password's environment variable is not set. Only with `lazySecrets`. */
  readonly missingPassword?: string;
  /** It has a URL of its own, so it can be on another server than the control database. */
  readonly elsewhere: boolean;
  /** According to the configuration. Settings of role, database or server can name another table. */
  readonly schema: string;
  readonly table: string;
  /** Whether a missing schema, type and table are created. */
  readonly create: boolean;
  readonly createRoleAndDatabase: boolean;
  /** Whether each task runs as the role in its row, and not as the entry's user. */
  readonly users: boolean;
  readonly parameters: FileParameters;
  /** The entry's short keys override every other level. */
  readonly fixed: {
    readonly sleep?: number;
    readonly reset?: string;
    readonly run?: number;
    readonly schema?: string;
    readonly table?: string;
  };
}

export interface Configuration {
  /** Absolute path of the configuration file; null if there is none. */
  readonly file: string | null;
  /** Its database holds the supervisor's lock. */
  readonly control: ConnectionTarget;
  readonly parameters: FileParameters;
  readonly entries: readonly Entry[];
}
