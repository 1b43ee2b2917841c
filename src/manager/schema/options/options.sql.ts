import { createHash } from "node:crypto";
import type { Client } from "../../../shared/postgres/client.js";
import { identifier, literal } from "../../../shared/postgres/quoting.js";
import { keyProblems, type KeyProblem } from "../keyIndex.js";
import type { TaskTable } from "../taskTable.js";
import type { OptionCheck } from "./optionCheck.js";
import { aloneCheck } from "./aloneCheck.sql.js";
import { isPartitionedByPlan, orderCheck, refusedOrderCheck } from "./orderCheck.sql.js";
import { scheduleCheck } from "./scheduleCheck.sql.js";
import {
  argumentsCheck,
  gapCheck,
  keyCheck,
  refusedKeyCheck,
  retryCheck,
  roleCheck,
  suspendCheck,
  tellCheck,
  withinCheck,
} from "./valueChecks.sql.js";

/** The comment of the function begins with this text. A digest of the statements that created it follows. */
const ownComment = "pg-task options ";

/** The plan of a schedule is computed before the order of tasks puts it off. */
const optionChecks = (
  table: TaskTable,
  zone: string,
  keyProblem: KeyProblem | null,
  byPlan: boolean,
): OptionCheck[] => [
  ...(keyProblem === null ? [] : [refusedKeyCheck(keyProblems[keyProblem])]),
  retryCheck,
  ...(keyProblem === null ? [keyCheck] : []),
  argumentsCheck,
  gapCheck,
  suspendCheck,
  tellCheck,
  withinCheck,
  ...(table.usersOwner === null ? [roleCheck] : []),
  scheduleCheck(table, zone),
  aloneCheck(table),
  byPlan ? refusedOrderCheck : orderCheck,
];

/**
 * Creates or replaces the function and the triggers that check the optional columns, and that plan the first run of a
 * rule. If their statements are unchanged, nothing is locked.
 *
 * @param zone time zone of rules that name none. If it is empty, they get that of new sessions of the table's owner.
 * @returns whether the objects were created or replaced
 */
export async function ensureOptions(
  client: Client,
  table: TaskTable,
  zone: string,
  keyProblem: KeyProblem | null = null,
): Promise<boolean> {
  const place = await readPlace(client, table);
  const byPlan = place.partitioned && (await isPartitionedByPlan(client, table));
  const zoneSql = zone === "" ? databaseZone(await sessionZone(client)) : literal(zone);
  const checks = optionChecks(table, zoneSql, keyProblem, byPlan);
  const statements = optionStatements(table, place, checks);
  const digest = createHash("sha256").update(statements.join("\n")).digest("hex").slice(0, 16);
  if ((await currentDigest(client, table, place)) === digest) return false;
  for (const statement of statements) await client.query(statement);
  await client.query(`COMMENT ON FUNCTION ${table.qualifiedOptions}() IS '${ownComment}${digest}'`);
  return true;
}

async function sessionZone(client: Client): Promise<string> {
  const { rows } = await client.query<{ zone: string }>("SELECT current_setting('TimeZone') AS zone");
  return rows[0]?.zone ?? "UTC";
}

/**
 * SQL of the time zone that a new session of the table's owner gets, so that a change by ALTER DATABASE or ALTER ROLE
 * counts from the next INSERT on. If neither sets it, it is the zone of the manager's session.
 */
const databaseZone = (zone: string): string => `(SELECT substr(c.setting, 10)
      FROM pg_db_role_setting AS d, unnest(d.setconfig) AS c(setting)
      WHERE d.setrole = ANY (ARRAY[0::oid, (SELECT r.relowner FROM pg_class AS r WHERE r.oid = TG_RELID)])
        AND d.setdatabase = ANY (ARRAY[0::oid, (SELECT b.oid FROM pg_database AS b WHERE b.datname = current_database())])
        AND lower(left(c.setting, 9)) = 'timezone='
      ORDER BY d.setrole DESC, d.setdatabase DESC LIMIT 1), ${literal(zone)}`;

interface Place {
  readonly partitioned: boolean;
  /** Before PostgreSQL 13, a partitioned table could not have BEFORE row triggers: then its leaf partitions. */
  readonly relations: readonly string[];
}

async function readPlace(client: Client, { qualified }: TaskTable): Promise<Place> {
  const { rows } = await client.query<{ relation: string; partitioned: boolean }>(
    `SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS relation, t.relkind = 'p' AS partitioned
     FROM pg_catalog.pg_class AS t, pg_catalog.pg_class AS c
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE t.oid = $1::pg_catalog.regclass
       AND CASE WHEN t.relkind = 'p' AND current_setting('server_version_num')::integer < 130000
         THEN c.oid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(t.oid) AS p WHERE p.isleaf) ELSE c.oid = t.oid END
     ORDER BY 1`,
    [qualified],
  );
  return { partitioned: rows[0]?.partitioned === true, relations: rows.map(({ relation }) => relation) };
}

async function currentDigest(client: Client, table: TaskTable, { relations }: Place): Promise<string | null> {
  const { rows } = await client.query<{ comment: string | null }>(
    `SELECT pg_catalog.obj_description(p.oid, 'pg_proc') AS comment FROM pg_catalog.pg_proc AS p
     WHERE p.pronamespace = $1::pg_catalog.regnamespace AND p.proname = $2 AND p.pronargs = 0
       AND (SELECT count(*) FROM pg_catalog.pg_trigger AS t
         WHERE t.tgrelid = ANY ($3::text[]::pg_catalog.regclass[]) AND t.tgname = ANY ($4::text[])) = $5::integer`,
    [
      identifier(table.schema),
      table.optionsFunction,
      relations,
      [table.optionsInsertTrigger, table.optionsUpdateTrigger],
      2 * relations.length,
    ],
  );
  const comment = rows[0]?.comment ?? "";
  return comment.startsWith(ownComment) ? comment.slice(ownComment.length) : null;
}

function optionStatements(
  table: TaskTable,
  { partitioned, relations }: Place,
  checks: readonly OptionCheck[],
): string[] {
  const name = table.qualifiedOptions;
  const drop = relations.flatMap((relation) =>
    [table.optionsInsertTrigger, table.optionsUpdateTrigger].map(
      (trigger) => `DROP TRIGGER IF EXISTS ${identifier(trigger)} ON ${relation}`,
    ),
  );
  const create = `CREATE OR REPLACE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS ${literal(functionBody(checks, partitioned))}`;
  const isUsed = checks.map((check) => check.isUsed).join(" OR ");
  const wasUsed = checks.flatMap((check) => check.wasUsed ?? []).map((condition) => ` OR ${condition}`);
  const watched = [...new Set(checks.flatMap((check) => check.watched))].map(identifier).join(", ");
  return [
    create,
    ...drop,
    ...relations.flatMap((relation) => [
      `CREATE TRIGGER ${identifier(table.optionsInsertTrigger)} BEFORE INSERT ON ${relation} FOR EACH ROW
  WHEN (${isUsed}) EXECUTE FUNCTION ${name}()`,
      `CREATE TRIGGER ${identifier(table.optionsUpdateTrigger)}
  BEFORE UPDATE${partitioned ? "" : ` OF ${watched}`} ON ${relation} FOR EACH ROW
  WHEN (${isUsed}${wasUsed.join("")}) EXECUTE FUNCTION ${name}()`,
    ]),
  ];
}

/**
 * Rows that the manager writes are already checked and planned. A role that claims to be the manager can only give its
 * own tasks a rule that fails when the next run is planned. If an UPDATE moves a row to another partition, the server
 * also fires the INSERT trigger there, and the row has already passed the UPDATE trigger.
 */
function functionBody(checks: readonly OptionCheck[], partitioned: boolean): string {
  const variables = checks.flatMap((check) => check.variables ?? []).map((each) => `\n  ${each};`);
  const moved = `
  IF TG_OP = 'UPDATE' THEN
    PERFORM set_config('pgtask.updated', NEW.id::text, true);
  ELSIF current_setting('pgtask.updated', true) = NEW.id::text THEN
    PERFORM set_config('pgtask.updated', '', true);
    RETURN NEW;
  END IF;`;
  return `
DECLARE${variables.join("")}
BEGIN
  IF current_setting('pgtask.manager', true) = 'on' THEN
    RETURN NEW;
  END IF;${partitioned ? moved : ""}${checks.map(({ body }) => body).join("")}
  RETURN NEW;
END `;
}
