/**
 * The columns of a task table, in the order of a new table. Whatever lists columns by what they are derives from this.
 */

export interface TaskColumn {
  /** As `format_type` shows it. */
  readonly type: keyof typeof valueKinds;
  readonly nullable?: true;
  /** `parameter` for the value of the parameter with the same name, or SQL. */
  readonly default?: string;
  /** `internal` columns mean nothing to users. */
  readonly by: "producer" | "pg-task" | "internal";
  /** A successor (the next run of a repeating task) inherits it. */
  readonly inherited: boolean;
  /** First version of the table that has it. */
  readonly since: number;
  /** A check constraint enforces them. */
  readonly bounds?: "above 0" | "not below 0" | "ASCII";
  /** The kind of text, if the type does not say it. */
  readonly value?: string;
  /** For the comment of the column, the API, `add --help` and the page's form. */
  readonly meaning: string;
}

const valueKinds = {
  bigint: "id",
  integer: "number",
  interval: "interval",
  "timestamp with time zone": "time",
  boolean: "flag",
  '"char"': "char",
  text: "text",
  name: "text",
  state: "text",
  "bigint[]": "ids",
  "text[]": "list",
  jsonb: "json",
} as const;

// The traits that columns share, each with the version of the table in which these columns came.
const given = { by: "producer", inherited: true, since: 1 } as const;
const output = { ...given, default: "parameter" } as const;
const span = { ...output, type: "interval", bounds: "not below 0" } as const;
const result = { by: "pg-task", inherited: false, since: 1 } as const;
const moment = { type: "timestamp with time zone", nullable: true } as const;
const internal = { by: "internal", inherited: false, since: 1 } as const;
const since2 = { since: 2, nullable: true } as const;
const option2 = { ...given, ...since2 } as const;

export const taskColumns = {
  id: { ...result, type: "bigint", meaning: "primary key" },
  parent: {
    ...result,
    by: "producer",
    type: "bigint",
    nullable: true,
    meaning: "id of the task that inserted it, or whose successor it is",
  },
  plan: { ...result, by: "producer", type: "timestamp with time zone", value: "time", meaning: "when it is due" },
  take: { ...result, ...moment, meaning: "when it was claimed" },
  start: { ...result, ...moment, meaning: "when it started" },
  stop: { ...result, ...moment, meaning: "when it ended" },
  active: { ...output, type: "interval", bounds: "above 0", meaning: "how late it may start before it expires" },
  live: { ...span, meaning: "maximum age of its session" },
  repeat: { ...span, meaning: "repeat at this interval" },
  timeout: { ...span, meaning: "maximum run time, 0 is unlimited" },
  count: {
    ...output,
    type: "integer",
    bounds: "not below 0",
    meaning: "how many tasks its session runs before it ends",
  },
  hash: {
    by: "pg-task",
    inherited: true,
    since: 1,
    type: "integer",
    meaning: "identifies the group: computed from group and remote",
  },
  max: {
    ...output,
    type: "integer",
    meaning: "how many others of its group may run at the same time, also its priority; negative: pause in ms",
  },
  pid: {
    ...result,
    type: "integer",
    nullable: true,
    meaning: "process id of the backend that runs it, or ran it last",
  },
  crash: { ...result, type: "integer", default: "0", meaning: "how often its run has taken its own session down" },
  state: { ...result, type: "state", default: "'PLAN'", meaning: "PLAN, TAKE, WORK, DONE, FAIL, GONE or STOP" },
  ready: {
    ...internal,
    type: "boolean",
    nullable: true,
    default: "true",
    meaning: "due, not due yet, or null when it does not wait",
  },
  delete: { ...output, type: "boolean", meaning: "delete the finished row if output and error are null" },
  drift: { ...output, type: "boolean", meaning: "repeat relative to the end, not to the plan" },
  header: { ...output, type: "boolean", meaning: "column names in output" },
  save: { ...output, type: "boolean", meaning: "keep session state between tasks" },
  string: { ...output, type: "boolean", meaning: "quote only strings" },
  atomic: { ...output, type: "boolean", meaning: "commit effect and DONE in one transaction if the SQL allows it" },
  delimiter: { ...output, type: '"char"', bounds: "ASCII", meaning: "separates output columns" },
  escape: { ...output, type: '"char"', bounds: "ASCII", meaning: "escape character in output" },
  quote: { ...output, type: '"char"', bounds: "ASCII", meaning: "quote character in output" },
  data: { ...given, type: "text", nullable: true, meaning: "free for your own use" },
  error: { ...result, type: "text", nullable: true, meaning: "errors of the run" },
  group: { ...output, type: "text", value: "name", meaning: "group name" },
  input: { ...given, type: "text", meaning: "the SQL to run" },
  null: { ...output, type: "text", meaning: "represents null in output" },
  output: { ...result, type: "text", nullable: true, meaning: "result of the run" },
  owner: { ...internal, type: "text", nullable: true, meaning: "the session that has the task, null when none has" },
  remote: { ...given, type: "text", nullable: true, value: "string", meaning: "connection string of another database" },
  keep: { ...span, meaning: "how long the finished row is kept, 0 is forever" },
  rule: { ...option2, type: "text", value: "rule", meaning: "run by this schedule: cron, RFC 5545, or a query" },
  zone: { ...option2, type: "text", value: "name", meaning: "time zone of the rule" },
  catchup: { ...option2, type: "boolean", meaning: "make up for every missed time" },
  overlap: { ...option2, type: "boolean", meaning: "plan the next run when this one starts" },
  retry: {
    ...option2,
    type: "integer",
    default: "parameter",
    meaning: "how often it is tried again after an error that sqlstate allows",
  },
  backoff: {
    ...option2,
    type: "interval",
    default: "parameter",
    meaning: "pause before the first retry, doubled for each further one",
  },
  sqlstate: { ...option2, type: "text[]", value: "codes", meaning: "errors that are tried again, such as 40,55P03" },
  attempt: { ...result, ...since2, type: "integer", meaning: "how many tries have failed and led to a retry" },
  errors: { ...result, ...since2, type: "jsonb", meaning: "errors of tries that led to a retry, the oldest first" },
  after: { ...option2, inherited: false, type: "bigint[]", meaning: "older tasks for whose end it waits, such as 7,8" },
  upon: {
    ...option2,
    inherited: false,
    type: "text",
    value: "how",
    meaning: "how they have to end: done, fail or end",
  },
  key: { ...option2, type: "text", meaning: "at most one task with this key waits, and at most one runs" },
  args: { ...option2, type: "jsonb", meaning: "values for the SQL: an array for $1, $2 and so on, or an object" },
  gap: { ...option2, type: "interval", default: "parameter", meaning: "least time since the last start of its group" },
  role: { ...option2, type: "name", value: "name", meaning: "role that it runs as, in a table with users" },
  created: { ...result, ...since2, ...moment, default: "statement_timestamp()", meaning: "when it was inserted" },
  due: {
    ...internal,
    ...since2,
    ...moment,
    meaning: "the time for which it was planned, if a retry, a pause or after has moved its plan",
  },
  wait: {
    ...internal,
    ...since2,
    type: "integer",
    meaning: "0 or more if it waits for others; negative if the query in rule has to compute its plan",
  },
  plain: {
    ...internal,
    ...since2,
    type: "boolean",
    default: "true",
    meaning: "false if other rows depend on its end; null is true",
  },
  suspend: {
    ...option2,
    since: 10,
    type: "integer",
    meaning: "after so many failures in a row, its schedule or its group is paused",
  },
  failures: {
    ...result,
    since: 10,
    nullable: true,
    inherited: true,
    type: "integer",
    meaning: "how many runs of its schedule with suspend have failed in a row",
  },
  tell: {
    ...option2,
    since: 10,
    type: "text",
    value: "channel",
    meaning: "channel that is notified when it has ended",
  },
  jitter: {
    ...option2,
    since: 10,
    type: "interval",
    meaning: "run up to this much later than the rule says, always by the same time",
  },
  shift: {
    ...internal,
    since: 10,
    nullable: true,
    inherited: true,
    type: "interval",
    meaning: "how much later than its rule says it runs, within jitter",
  },
  within: {
    ...option2,
    since: 10,
    type: "interval",
    meaning: "maximum time from its start, or that of its chain, to the end, with all tries and steps",
  },
  deadline: {
    ...internal,
    since: 10,
    ...moment,
    meaning: "when the time given by within is over, once it has begun",
  },
  alone: {
    ...option2,
    since: 11,
    type: "text",
    value: "where",
    meaning: "nothing else of its group, or of the table, runs beside it and its chain: group or table",
  },
  turn: {
    ...internal,
    ...since2,
    since: 11,
    type: "bigint",
    meaning: "with alone: id of the first task of its chain, null if it is that itself",
  },
} as const satisfies Readonly<Record<string, TaskColumn>>;

type Columns = typeof taskColumns;

export type ColumnName = keyof Columns;

export type ColumnsWith<Traits extends Partial<TaskColumn>> = {
  [Name in ColumnName]: Columns[Name] extends Traits ? Name : never;
}[ColumnName];

export const isTaskColumn = (name: string): name is ColumnName => Object.hasOwn(taskColumns, name);

export type NamedColumn = TaskColumn & { readonly name: ColumnName };

export const columnList: readonly NamedColumn[] = Object.entries(taskColumns).flatMap(([name, column]) =>
  isTaskColumn(name) ? [{ name, ...column }] : [],
);

export const columnNames: readonly ColumnName[] = columnList.map(({ name }) => name);

/** In the order of a new table. */
export function columnsWith<const Traits extends Partial<TaskColumn>>(traits: Traits): readonly ColumnsWith<Traits>[] {
  const has = (name: ColumnName): name is ColumnsWith<Traits> =>
    Object.entries(traits).every(([key, value]) => Reflect.get(taskColumns[name], key) === value);
  return columnNames.filter(has);
}

export const valueKind = (column: TaskColumn): (typeof valueKinds)[keyof typeof valueKinds] => valueKinds[column.type];
