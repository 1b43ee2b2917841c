import { PgTaskError } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { Client, Queryable } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { addedColumns, addMissingColumns, columnsVersion, presentColumns } from "./addedColumns.js";
import { describeMissingColumns } from "./adoption/addColumns.js";
import { allFeatures, featureColumns, type Feature } from "./features.js";
import { readRecord, recordVersion } from "./migrations.js";
import type { TaskTable } from "./taskTable.js";

/** The user's columns that have the name of a column of pg-task, and those that no longer have it. */
interface OwnColumns {
  readonly own: readonly string[];
  /** Columns that the user has renamed or dropped since, so that pg-task has added its own. */
  readonly freed: readonly string[];
}

/**
 * Determines which columns belong to the user, in the caller's transaction. If the user has renamed such a column,
 * pg-task's own column is added, unless the entry says `"create": false`.
 *
 * @throws PgTaskError SCHEMA_INCOMPATIBLE if a column of pg-task has been dropped or renamed.
 */
export async function settleOwnColumns(client: Client, table: TaskTable, create: boolean): Promise<OwnColumns> {
  const { version, ownColumns } = await readRecord(client, table);
  const present = await presentColumns(client, table);
  const absent = addedColumns.filter((name) => !present.has(name));
  const lost = absent.filter((name) => !ownColumns.includes(name));
  if (lost.length > 0) {
    const message = `cannot use ${table.qualified}: ${describeMissingColumns(lost)}`;
    throw new PgTaskError("SCHEMA_INCOMPATIBLE", message);
  }
  if (absent.length === 0 || !create) return { own: ownColumns, freed: [] };
  const own = ownColumns.filter((name) => present.has(name));
  await addMissingColumns(client, table);
  await recordVersion(client, table, version, own);
  return { own, freed: absent };
}

/** Stores in `table` which columns belong to the user, and logs the features that are off and those that are now on. */
export function applyOwnColumns(table: TaskTable, { own, freed }: OwnColumns, log: Log): void {
  table.ownColumns = new Set(own);
  table.features = featuresWithout(own);
  const on = [...table.features].filter((feature) => intersects(featureColumns[feature], freed));
  if (on.length > 0) log.info({ table: table.logName, columns: freed, features: on }, "features turned on");
  const off = featuresOff(own);
  if (off.length === 0) return;
  const columns = columnsInTheWay(own);
  const remedy = renameStatements(table, own).join("; ");
  log.warn({ table: table.logName, columns, features: off, remedy }, "features off, the table has its own columns");
}

const intersects = (some: readonly string[], others: readonly string[]): boolean =>
  some.some((name) => others.includes(name));

/** Returns the features that are on although these columns belong to the user. */
export function featuresWithout(own: readonly string[]): ReadonlySet<Feature> {
  return new Set([...allFeatures].filter((feature) => !intersects(featureColumns[feature], own)));
}

/** Returns the features that are on for the table. */
export async function readFeatures(client: Queryable, table: TaskTable): Promise<ReadonlySet<Feature>> {
  const { version, ownColumns } = await readRecord(client, table);
  return version < columnsVersion ? new Set() : featuresWithout(ownColumns);
}

/** Returns the features that are off because these columns belong to the user. */
export function featuresOff(own: readonly string[]): Feature[] {
  return [...allFeatures].filter((feature) => intersects(featureColumns[feature], own));
}

/** Returns those of the user's columns that a feature needs. */
export function columnsInTheWay(own: readonly string[]): string[] {
  const needed = Object.values(featureColumns).flat();
  return own.filter((name) => needed.includes(name));
}

/** Returns the statements after which the next start turns on the features that are off. */
export function renameStatements({ qualified }: TaskTable, own: readonly string[]): string[] {
  return columnsInTheWay(own).map(
    (name) => `ALTER TABLE ${qualified} RENAME COLUMN ${identifier(name)} TO ${identifier(`${name}_before`)}`,
  );
}
