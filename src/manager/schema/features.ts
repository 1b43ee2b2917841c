/**
 * A part of pg-task that needs columns of its own. It is off for a table that already had a column with one of their
 * names.
 */
export type Feature = (typeof features)[number];

const features = ["schedules", "retries", "errors", "order", "keys", "arguments", "gaps", "roles"] as const;

/** The columns of each feature. */
export const featureColumns: Readonly<Record<Feature, readonly string[]>> = {
  schedules: ["rule", "zone", "catchup", "overlap", "due", "wait"],
  retries: ["retry", "backoff", "sqlstate", "attempt", "due"],
  errors: ["errors"],
  order: ["after", "upon", "wait", "due", "plain"],
  keys: ["key"],
  arguments: ["args"],
  gaps: ["gap"],
  roles: ["role"],
};

export const allFeatures: ReadonlySet<Feature> = new Set(features);
