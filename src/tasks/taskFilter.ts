/** The states a task can be in. */
export const states = ["PLAN", "TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"] as const;

export type TaskState = (typeof states)[number];

/** Which tasks are meant; what is left out does not matter. */
export interface TaskFilter {
  readonly states?: readonly TaskState[];
  readonly group?: string;
  /** Stands in input, data or error, in whatever case. */
  readonly text?: string;
  /** Bounds of plan, as PostgreSQL takes a time: from the first on, before the second. */
  readonly since?: string;
  readonly until?: string;
}

/** SQL of the filter's conditions on the table `t`; their values are added to `values`. */
export function filterSql(filter: TaskFilter, values: unknown[]): string {
  const value = (given: unknown): string => `$${values.push(given)}`;
  const conditions: string[] = [];
  const { states: wanted, group, text, since, until } = filter;
  if (wanted !== undefined) conditions.push(`t.state::text = ANY (${value(wanted)}::text[])`);
  if (group !== undefined) conditions.push(`t."group"::text = ${value(group)}::text`);
  if (text !== undefined) {
    const place = `lower(${value(text)}::text)`;
    const columns = ["input", "data", "error"].map(
      (name) => `strpos(lower(t.${name}::text), ${place}) > 0`,
    );
    conditions.push(`(${columns.join(" OR ")})`);
  }
  if (since !== undefined) conditions.push(`t.plan >= ${value(since)}::timestamptz`);
  if (until !== undefined) conditions.push(`t.plan < ${value(until)}::timestamptz`);
  return conditions.length === 0 ? "true" : conditions.join(" AND ");
}
