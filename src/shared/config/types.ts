/** How libpq's `sslmode` says a connection is secured. */
export type SslMode = "disable" | "allow" | "prefer" | "require" | "verify-ca" | "verify-full";

/** Everything needed to open a connection; holds a secret, so never log it whole (see describeTarget). */
export interface ConnectionTarget {
  /** Host name, address, or the absolute path of a Unix socket's folder. */
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
  readonly password?: string;
  readonly sslmode: SslMode;
  /** Path of the file with trusted root certificates (libpq's `sslrootcert`). */
  readonly sslrootcert?: string;
  /** Paths of the client's certificate and key. */
  readonly sslcert?: string;
  readonly sslkey?: string;
  /** How long connecting may take, in ms; 0 is without limit. */
  readonly connectTimeoutMs: number;
}

/** The values of the parameters of the level "file", by their own names, defaults filled in. */
export interface FileParameters {
  readonly "pg_task.delete": boolean;
  readonly "pg_task.drift": boolean;
  readonly "pg_task.header": boolean;
  readonly "pg_task.string": boolean;
  readonly "pg_task.save": boolean;
  readonly "pg_task.atomic": boolean;
  readonly "pg_task.count": number;
  readonly "pg_task.max": number;
  /** Intervals are PostgreSQL's text and computed by it. */
  readonly "pg_task.active": string;
  readonly "pg_task.live": string;
  readonly "pg_task.repeat": string;
  readonly "pg_task.keep": string;
  readonly "pg_task.timeout": string;
  readonly "pg_task.delimiter": string;
  readonly "pg_task.escape": string;
  readonly "pg_task.quote": string;
  readonly "pg_task.group": string;
  readonly "pg_task.null": string;
  /** SQL expression. */
  readonly "pg_task.plan": string;
  /** Bytes. */
  readonly "pg_task.output": number;
  readonly "pg_task.crash": number;
  readonly "pg_task.run": number;
  readonly "pg_task.fetch": number;
  readonly "pg_task.limit": number;
  /** Milliseconds. */
  readonly "pg_task.sleep": number;
  readonly "pg_task.reset": string;
  readonly "pg_task.idle": number;
  readonly "pg_task.schema": string;
  readonly "pg_task.table": string;
  readonly "pg_task.data": string;
  readonly "pg_task.user": string;
  readonly "pg_conf.max": number;
  /** Milliseconds. */
  readonly "pg_conf.close": number;
  readonly "pg_work.close": number;
  readonly "pg_conf.fetch": number;
  readonly "pg_work.fetch": number;
  /** Seconds. */
  readonly "pg_conf.restart": number;
  readonly "pg_work.restart": number;
  /** Milliseconds. */
  readonly "pg_conf.grace": number;
  readonly "pg_conf.threads": number;
  readonly "pg_conf.name": string;
  readonly "pg_conf.log": "trace" | "debug" | "info" | "warn" | "error" | "fatal" | "silent";
  /** `HOST:PORT` or `:PORT`; empty is off; `auto`, which no file has, is the embedded server's. */
  readonly "pg_http.listen": string;
  /** Secret; empty is none. Only the file's own parameters have it, no entry's. */
  readonly "pg_http.token": string;
}

/** Where tasks are in a database: names as they are, unquoted. */
export interface TableLocation {
  readonly schema: string;
  readonly table: string;
}

/** One entry of `pg_task.json`, resolved: one manager. */
export interface Entry {
  /** Stable identity of what it manages: server, database, schema and table. */
  readonly key: string;
  readonly target: ConnectionTarget;
  /**
   * Whether the target's password is the entry's own, so that a role created for it gets it; not
   * so when it is PGPASSWORD, the control connection's, or from the password file.
   */
  readonly ownPassword: boolean;
  /** Whether it has a url of its own: then it is on another server than the control connection. */
  readonly elsewhere: boolean;
  /** Where its tasks are, as far as the configuration says. */
  readonly schema: string;
  readonly table: string;
  readonly create: boolean;
  /** The file's parameters with the entry's own over them. */
  readonly parameters: FileParameters;
  /** What the entry itself gives of these stands above every other level. */
  readonly fixed: {
    readonly sleep?: number;
    readonly reset?: string;
    readonly run?: number;
    readonly schema?: string;
    readonly table?: string;
  };
}

/** A whole, valid configuration. */
export interface Configuration {
  /** Absolute path of the file it was read from, null when there was none. */
  readonly file: string | null;
  /** The connection whose database holds the supervisor's lock. */
  readonly control: ConnectionTarget;
  readonly parameters: FileParameters;
  readonly entries: readonly Entry[];
}
