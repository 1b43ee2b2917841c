import type { TaskTable } from "../manager/schema/taskTable.js";
import type { Entry } from "../shared/config/types.js";
import { errorDefinitions, exitCodes } from "../shared/errorCodes.js";
import type { Client } from "../shared/postgres/client.js";
import { describeCopy } from "../manager/schema/home.js";
import { readCopy } from "../tasks/copies.js";
import { readTableRoles } from "../tasks/queries/roles.js";
import { readSessions } from "../tasks/queries/executorSessions.js";
import { readScheduleWarnings, type ScheduleWarning } from "../tasks/explain/scheduleWarnings.js";
import { formatCount } from "./terminal/format.js";
import { missingColumnNames } from "../manager/schema/adoption/addColumns.js";
import { readLayout } from "../manager/schema/adoption/layout.js";
import { foreignNames } from "../manager/schema/adoption/obstacles.js";
import type { TableRecord } from "../manager/schema/columns.js";
import { latestVersion, nameAnotherPlace, readRecord } from "../manager/schema/migrations.js";
import { readIdCache } from "../manager/schema/idCache.js";
import { isPartitionedByPlan, planPartitionsProblem } from "../manager/schema/options/orderCheck.sql.js";
import { readWriters, revokeWriting } from "../manager/schema/grants.js";
import { describeUnknownZone, placeZone, unknownZones } from "../manager/schema/unknownZones.js";
import type { FileParameters } from "../shared/config/parameterTable.js";

/** What `doctor` or `check` has found. */
export interface Finding {
  /** Of the check, or the kind of the object that was inspected, such as `table`. */
  readonly name: string;
  readonly level: "ok" | "warn" | "fail";
  /** Empty if the state of the object says it all. */
  readonly text: string;
  readonly remedy?: string;
  readonly exitCode?: number;
  /** The object that was inspected, if `check` has inspected one that an entry needs. */
  readonly object?: { readonly name: string; readonly state: ObjectState };
}

export type ObjectState = "exists" | "would be created" | "missing" | "incomplete" | "not allowed" | "unknown";

export const ok = (name: string, text: string): Finding => ({ name, level: "ok", text });

export const warn = (name: string, text: string, remedy: string): Finding => ({ name, level: "warn", text, remedy });

export const fail = (name: string, text: string, remedy: string, exitCode = 4): Finding => ({
  name,
  level: "fail",
  text,
  remedy,
  exitCode,
});

/** @param why the reason for the state, if it needs an explanation */
export const foundObject = (
  kind: "role" | "database" | "schema" | "type" | "table",
  name: string,
  state: ObjectState,
  why = "",
): Finding => ({ name: kind, level: levelOf[state], text: why, object: { name, state } });

export const levelOf: Readonly<Record<ObjectState, Finding["level"]>> = {
  exists: "ok",
  "would be created": "ok",
  unknown: "warn",
  missing: "fail",
  incomplete: "fail",
  "not allowed": "fail",
};

export async function checkHome(
  client: Client,
  table: TaskTable,
  { parameters }: Pick<Entry, "parameters">,
): Promise<Finding> {
  const reason = await readCopy(client, table, { parameters });
  if (reason === null) return ok("home", "the table is no copy");
  const { running } = await readSessions(client, table);
  return fail("home", describeCopy(reason, running), errorDefinitions.SCHEMA_COPY.remedy);
}

const maxNamed = 5;

export async function checkSchedules(client: Client, table: TaskTable): Promise<Finding[]> {
  const { examined, more, warnings, failed } = await readScheduleWarnings(client, table);
  const checks = warnings.map(toCheck);
  if (failed.length > 0) checks.push(lastRunsFailed(failed));
  if (checks.length > 0) return checks;
  if (examined === 0) return [ok("schedules", "none")];
  const which = more ? `the first ${formatCount(examined, "schedule")}` : formatCount(examined, "schedule");
  return [ok("schedules", `${which}: no problem found, and no last run or try failed`)];
}

export async function checkRules(client: Client, table: TaskTable): Promise<Finding[]> {
  const { warnings } = await readScheduleWarnings(client, table);
  return warnings.map(toCheck);
}

const toCheck = ({ text, remedy }: ScheduleWarning): Finding => warn("schedules", text, remedy);

/** A warning, because a single failed task must not make the command fail. */
function lastRunsFailed(failed: readonly string[]): Finding {
  const names = [
    ...failed.slice(0, maxNamed),
    ...(failed.length > maxNamed ? [`${failed.length - maxNamed} more`] : []),
  ];
  return warn(
    "schedules",
    `the last run or try of ${formatCount(failed.length, "schedule")} failed: ${names.join(", ")}`,
    "pg-task list --schedules shows the last runs and tries, pg-task list --state FAIL the errors of runs",
  );
}

/** How far a table is one of this pg-task. */
export interface TableState extends TableRecord {
  /** Whether functions of the table name another place, because it was moved or renamed, so that they fail. */
  readonly isElsewhere: boolean;
  /** The columns that a table of the latest version lacks. In any other table, a migration adds missing columns. */
  readonly lost: ReturnType<typeof missingColumnNames>;
  /** The columns of the user that keep an earlier version from being migrated. */
  readonly foreign: ReturnType<typeof foreignNames>;
}

export async function readTableState(client: Client, table: TaskTable): Promise<TableState> {
  const record = await readRecord(client, table);
  const layout = await readLayout(client, table);
  return {
    ...record,
    isElsewhere: await nameAnotherPlace(client, table),
    lost: record.version === latestVersion ? missingColumnNames(layout) : [],
    foreign: record.version < latestVersion ? foreignNames(table, layout, record) : [],
  };
}

/**
 * Null if tasks can wait for all that were inserted before.
 *
 * @param isAdopted whether the ids are known to come from a sequence
 */
export async function checkWaiting(client: Client, table: TaskTable, isAdopted = true): Promise<Finding | null> {
  if (await isPartitionedByPlan(client, table))
    return ok("order", `no task can wait for others (after): ${planPartitionsProblem}`);
  const cache = isAdopted ? await readIdCache(client, table) : null;
  if (cache === null) return null;
  return warn(
    "order",
    `${cache.sequence} hands out ${cache.size} ids at a time: a task can have a smaller id than one that was inserted before it, and cannot wait for that one`,
    `ALTER SEQUENCE ${cache.sequence} CACHE 1`,
  );
}

/** The tasks of others run with all privileges of the entry's user. */
export async function checkWriters(client: Client, table: TaskTable): Promise<Finding> {
  const { unrestricted, byColumn } = await readWriters(client, table);
  const some = byColumn.length === 0 ? "" : `; some columns: ${byColumn.join(", ")}`;
  if ((await readTableRoles(client, table)) !== null)
    return ok(
      "writers",
      `write tasks that run as themselves: ${[...unrestricted, ...byColumn].join(", ") || "nobody"}`,
    );
  if (unrestricted.length > 0) {
    return warn(
      "writers",
      `${unrestricted.join(", ")} may write tasks, and so run SQL as the entry's user${some}`,
      `${revokeWriting(table, unrestricted)}; then grant what a role needs by column`,
    );
  }
  if (byColumn.length === 0) return ok("writers", "no other role may add or change tasks");
  return ok("writers", `may write some columns of tasks: ${byColumn.join(", ")}`);
}

export interface ConfiguredParameters {
  /** The parameters of the table's entry. */
  readonly parameters: FileParameters;
  /** `pg_task.zone` of the file, which the entry's own value replaces. */
  readonly fileZone: string;
}

export async function checkZone(
  client: Client,
  table: TaskTable,
  { parameters, fileZone }: ConfiguredParameters,
): Promise<Finding[]> {
  const configured = parameters["pg_task.zone"];
  const unknown = await unknownZones(client, table, configured);
  if (unknown.length === 0) return [ok("zone", "pg_task.zone is not set, or the name of a time zone")];
  return unknown.map((each) => {
    const { text, remedy } = describeUnknownZone(placeZone(each, configured === fileZone));
    return fail("zone", text, remedy, exitCodes.CONFIG);
  });
}
