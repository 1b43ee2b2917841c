/** The application names of pg-task's connections. The server truncates a name that is too long. */
export const applicationNames = {
  supervisor: "pg_conf",
  /** The connections on which a supervisor or manager asks what its backend is doing. */
  supervisorWatch: "pg_conf watch",
  managerWatch: "pg_work watch",
  /** The connection on which a manager writes large outputs. */
  managerOutput: "pg_work output",
  /** The connection with which a manager in deep sleep finds out whether the server accepts sessions. */
  managerLogin: "pg_work login",
  /** The connection on which a supervisor listens for the sleeping tables of a database, and holds their locks. */
  sleepWatch: "pg_work sleeping",
  /** The connection on which a session asks what the backend of a remote run is doing. */
  remoteWatch: "pg_task",
  web: "pg_task web",
  check: "pg_task check",
} as const;

export interface TaskTableName {
  readonly schema: string;
  readonly table: string;
}

export function managerName({ schema, table }: TaskTableName, sleepMs: number): string {
  return `pg_work ${schema} ${table} ${sleepMs}`;
}

export function idleSessionName({ schema, table }: TaskTableName): string {
  return `pg_task ${schema} ${table}`;
}

export function busySessionName(table: TaskTableName, group: string): string {
  return `${idleSessionName(table)} ${group}`;
}

/** SQL conditions on an application name, which the SQL expression `name` yields. */
export const isSupervisorSql = (name: string): string => `${name} = '${applicationNames.supervisor}'`;
export const isManagerSql = (name: string): string => `${name} LIKE 'pg\\_work %'`;
/** Also true for connections of the web server and of `pg-task check`. */
export const isSessionSql = (name: string): string => `${name} LIKE 'pg\\_task %'`;
export const isWebSql = (name: string): string => `${name} = '${applicationNames.web}'`;
export const isPgTaskSql = (name: string): string => `${name} ~ '^pg_(conf$|work |task )'`;
