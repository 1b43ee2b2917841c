import { allFeatures, featureColumns, type Feature } from "../manager/schema/features.js";
import { readFeatures } from "../manager/schema/ownColumns.js";
import type { TaskTable } from "../manager/schema/taskTable.js";
import { PgTaskError } from "../shared/errors.js";
import type { Queryable } from "../shared/postgres/client.js";
import { readTableExistence } from "./queries/tableExistence.js";

/** Says what a table cannot do because a feature is off. */
export const featureOffError = ({ qualified }: TaskTable, lacking: string, feature: Feature): PgTaskError =>
  new PgTaskError(
    "USAGE",
    `tasks of ${qualified} cannot ${lacking}: the feature ${feature} is off; pg-task doctor says why and what to do`,
  );

/** Makes sure that tasks of the table can have keys. */
export async function requireKeys(client: Queryable, table: TaskTable): Promise<void> {
  await requireColumns(client, table, ["key"]);
}

/** The features that are known to be on. A table keeps them unless it is replaced by another one. */
const knownOn = new WeakMap<TaskTable, ReadonlySet<Feature>>();

/**
 * Makes sure that columns of these names are pg-task's own. If a feature is off, they can be the user's.
 *
 * @throws PgTaskError USAGE for the first column whose feature is off
 */
export async function requireColumns(client: Queryable, table: TaskTable, columns: Iterable<string>): Promise<void> {
  const needed = [...columns].flatMap((column) => {
    const feature = [...allFeatures].find((each) => featureColumns[each].includes(column));
    return feature === undefined || knownOn.get(table)?.has(feature) === true ? [] : [{ column, feature }];
  });
  if (needed.length === 0) return;
  const on = await readFeatures(client, table);
  knownOn.set(table, on);
  const missing = needed.find(({ feature }) => !on.has(feature));
  if (missing === undefined) return;
  // The statement that comes next then says that the table is missing.
  if ((await readTableExistence(client, table)) === "no") return;
  const { column, feature } = missing;
  throw featureOffError(table, feature === "keys" ? "have keys" : `have ${column}`, feature);
}
