import { z } from "zod";

/**
 * The columns that a task's page does not show as properties of their own. Their types are not in the schema, because a
 * table that pg-task has adopted may have columns of other types, or columns of its own with these names.
 */
const descriptions: Readonly<Record<string, string>> = {
  take: "ISO 8601: when it was claimed",
  active: "interval: how long after plan it may still start",
  live: "interval: how long its session may serve the group",
  timeout: "interval: longest allowed run time",
  count: "integer: number of tasks after which its session ends",
  hash: "integer: identifies the group",
  crash: "integer: how often its run has ended its own session",
  delete: "boolean: whether the row is deleted if there is neither output nor error",
  drift: "boolean: whether the next plan is computed from the stop",
  header: "boolean: whether output begins with column names",
  save: "boolean: whether the session keeps its state",
  string: "boolean: whether only strings are quoted",
  atomic: "boolean: whether its effect is made exactly once",
  delimiter: "one character: separates the columns of output",
  escape: "one character: escapes in output",
  quote: "one character: quotes in output",
  null: "string: stands for null in output",
  owner: "string: the backend for which it was claimed",
  keep: "interval: how long the row is kept after its stop",
  zone: "string: time zone of the rule",
  catchup: "boolean: whether every missed time is made up for",
  overlap: "boolean: whether the next run is planned when this one starts",
  backoff: "interval: pause before the first retry",
  sqlstate: "array of strings: which errors are tried again",
  errors: "array: start, stop, sqlstate and error of each try that led to another one, the oldest first",
  after: "array of ids as strings: tasks that have to end first",
  upon: "done, fail or end: how they have to end; null means done",
  args: "array or object: values for the input",
  gap: "interval: least time between two starts of its group",
  role: "reserved",
  created: "ISO 8601: when it was inserted",
  due: "ISO 8601: the time for which it was planned, if a retry, a pause or after has moved its plan",
  wait: "integer: 0 or more if it waits for others; negative if the query in rule has to compute its plan",
  plain: "boolean: false if other rows depend on its end",
};

export const columnsSchema = z
  .looseObject(
    Object.fromEntries(
      Object.entries(descriptions).map(([name, description]) => [name, z.unknown().optional().meta({ description })]),
    ),
  )
  .meta({ description: "all other columns, including user-defined ones" });
