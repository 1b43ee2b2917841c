import { createHash } from "node:crypto";
import type { Client } from "../../shared/postgres/client.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { featureColumns, type Feature } from "./features.js";
import type { TaskTable } from "./taskTable.js";

/** The comment of the function begins with this text. A digest of the statements that created it follows. */
const ownComment = "pg-task options ";

/** Features that pg-task does not have yet. Their columns exist, but values in them are refused. */
const unsupported: readonly Feature[] = ["retries", "order", "keys", "arguments", "gaps", "roles"];

/** Columns that pg-task itself writes. Users do not set them. */
const internal: ReadonlySet<string> = new Set(["due", "wait", "plain", "attempt"]);

/** Columns of the feature that users set. */
const userColumns = (feature: Feature): string[] => featureColumns[feature].filter((name) => !internal.has(name));

/**
 * Creates or replaces the function and the triggers that check the optional columns of new and changed rows, and that
 * plan the first run of a rule. Their statements depend on the features of the table and on the default zone. If these
 * are unchanged, nothing is locked.
 *
 * @param zone time zone of rules that name none. If it is empty, the zone of the manager's session is used, which
 *   is that of the database.
 * @returns whether the objects were created or replaced
 */
export async function ensureOptions(client: Client, table: TaskTable, zone: string): Promise<boolean> {
  const relations = await triggerRelations(client, table);
  const statements = optionStatements(table, relations, zone === "" ? await sessionZone(client) : zone);
  const digest = createHash("sha256").update(statements.join("\n")).digest("hex").slice(0, 16);
  if ((await currentDigest(client, table, relations)) === digest) return false;
  for (const statement of statements) await client.query(statement);
  await client.query(
    `COMMENT ON FUNCTION ${identifier(table.schema)}.${identifier(table.optionsFunction)}() IS '${ownComment}${digest}'`,
  );
  return true;
}

async function sessionZone(client: Client): Promise<string> {
  const { rows } = await client.query<{ zone: string }>("SELECT current_setting('TimeZone') AS zone");
  return rows[0]?.zone ?? "UTC";
}

/**
 * Returns the relations that get the triggers: the table, or before PostgreSQL 13 its leaf partitions, because a
 * partitioned table could not have BEFORE row triggers.
 */
async function triggerRelations(client: Client, { qualified }: TaskTable): Promise<string[]> {
  const { rows } = await client.query<{ relation: string }>(
    `SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS relation
     FROM pg_catalog.pg_class AS t, pg_catalog.pg_class AS c
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE t.oid = $1::pg_catalog.regclass
       AND CASE WHEN t.relkind = 'p' AND current_setting('server_version_num')::integer < 130000
         THEN c.oid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(t.oid) AS p WHERE p.isleaf) ELSE c.oid = t.oid END
     ORDER BY 1`,
    [qualified],
  );
  return rows.map(({ relation }) => relation);
}

/** Returns the digest of the existing function, or null if the function or one of its triggers is missing. */
async function currentDigest(client: Client, table: TaskTable, relations: readonly string[]): Promise<string | null> {
  const { rows } = await client.query<{ comment: string | null }>(
    `SELECT pg_catalog.obj_description(p.oid, 'pg_proc') AS comment FROM pg_catalog.pg_proc AS p
     WHERE p.pronamespace = $1::pg_catalog.regnamespace AND p.proname = $2 AND p.pronargs = 0
       AND (SELECT count(*) FROM pg_catalog.pg_trigger AS t
         WHERE t.tgrelid = ANY ($3::text[]::pg_catalog.regclass[]) AND t.tgname = ANY ($4::text[])) = 2 * cardinality($3::text[])`,
    [
      identifier(table.schema),
      table.optionsFunction,
      relations,
      [table.optionsInsertTrigger, table.optionsUpdateTrigger],
    ],
  );
  const comment = rows[0]?.comment ?? "";
  return comment.startsWith(ownComment) ? comment.slice(ownComment.length) : null;
}

function optionStatements(table: TaskTable, relations: readonly string[], zone: string): string[] {
  const schedules = table.features.has("schedules");
  const refused = unsupported.filter((feature) => table.features.has(feature)).flatMap(userColumns);
  const columns = [...(schedules ? userColumns("schedules") : []), ...refused];
  const name = `${identifier(table.schema)}.${identifier(table.optionsFunction)}`;
  const drop = relations.flatMap((relation) =>
    [table.optionsInsertTrigger, table.optionsUpdateTrigger].map(
      (trigger) => `DROP TRIGGER IF EXISTS ${identifier(trigger)} ON ${relation}`,
    ),
  );
  if (columns.length === 0) return drop;
  const isUsed = `num_nonnulls(${columns.map((column) => `NEW.${identifier(column)}`).join(", ")}) > 0`;
  const watched = schedules ? [...columns, "plan", "repeat", "drift"] : columns;
  return [
    `CREATE OR REPLACE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS ${quoted(functionBody(table, { schedules, refused, zone }))}`,
    ...drop,
    ...relations.flatMap((relation) => [
      `CREATE TRIGGER ${identifier(table.optionsInsertTrigger)} BEFORE INSERT ON ${relation} FOR EACH ROW
  WHEN (${isUsed}) EXECUTE FUNCTION ${name}()`,
      `CREATE TRIGGER ${identifier(table.optionsUpdateTrigger)}
  BEFORE UPDATE OF ${watched.map(identifier).join(", ")} ON ${relation} FOR EACH ROW
  WHEN (${isUsed}) EXECUTE FUNCTION ${name}()`,
    ]),
  ];
}

const quoted = (body: string): string => literal(body);

interface BodyOptions {
  readonly schedules: boolean;
  readonly refused: readonly string[];
  readonly zone: string;
}

/**
 * SQL of the function's body. Rows that the manager writes are already checked and planned, so they are left as they
 * are. Any session can claim to be the manager, but this does no harm: it only lets a role store an invalid rule, which
 * fails when the next run is planned.
 */
function functionBody(table: TaskTable, { schedules, refused, zone }: BodyOptions): string {
  return `
DECLARE
  first_time record;
  is_new boolean := true;
  replans boolean;
BEGIN
  IF current_setting('pgtask.manager', true) = 'on' THEN
    RETURN NEW;
  END IF;${refused.map(refusal).join("")}${schedules ? scheduleBody(table, zone) : ""}
  RETURN NEW;
END `;
}

const refusal = (column: string): string => `
  IF NEW.${identifier(column)} IS NOT NULL THEN
    RAISE EXCEPTION '${column} is not supported yet' USING ERRCODE = 'feature_not_supported';
  END IF;`;

/**
 * SQL that checks the columns of a schedule and plans its first run.
 *
 * If a user moves the plan of a waiting row, the schedule goes on from the new plan. `due` stores this plan unless it
 * is a time of the rule. A row that is planned for infinity is paused. `due` then stores the time from which the
 * schedule goes on.
 */
function scheduleBody({ schema }: TaskTable, zone: string): string {
  const calendar = identifier(schema);
  return `
  IF NEW.rule IS NULL THEN
    IF NEW.zone IS NOT NULL THEN
      RAISE EXCEPTION 'zone is set without rule' USING ERRCODE = 'invalid_parameter_value',
        HINT = 'The zone is that of the rule.';
    ELSIF NEW.catchup AND NEW.drift AND NEW.repeat > interval '0' THEN
      RAISE EXCEPTION 'catchup and drift exclude each other' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN NEW;
  END IF;
  IF NEW.repeat > interval '0' THEN
    RAISE EXCEPTION 'rule and repeat exclude each other' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF TG_OP = 'UPDATE' THEN
    is_new := (NEW.rule, NEW.zone) IS DISTINCT FROM (OLD.rule, OLD.zone);
  END IF;
  replans := is_new AND NEW.state::text = 'PLAN' AND NEW.owner IS NULL;
  IF ${calendar}.task_rule_kind(NEW.rule) = 'query' THEN
    IF NEW.zone IS NOT NULL THEN
      RAISE EXCEPTION 'zone is set for a rule that is a query' USING ERRCODE = 'invalid_parameter_value',
        HINT = 'Use AT TIME ZONE in the query.';
    END IF;
    IF replans THEN
      NEW.wait := -1;
      NEW.due := NULL;
    ELSIF TG_OP = 'UPDATE' AND NEW.plan IS DISTINCT FROM OLD.plan AND NEW.due IS NOT DISTINCT FROM OLD.due THEN
      NEW.due := CASE WHEN NEW.plan = 'infinity' THEN coalesce(OLD.due, OLD.plan) END;
      NEW.wait := CASE WHEN NEW.plan = 'infinity' THEN OLD.wait END;
    END IF;
  ELSE
    NEW.zone := coalesce(NEW.zone, ${calendar}.task_rule_zone(NEW.rule), nullif(current_setting('pg_task.zone', true), ''), ${literal(zone)});
    IF is_new AND NOT replans THEN
      PERFORM ${calendar}.task_rule_check(NEW.rule, NEW.zone);
    END IF;
    IF replans THEN
      IF TG_OP = 'UPDATE' AND NEW.plan IS NOT DISTINCT FROM OLD.plan THEN
        NEW.plan := statement_timestamp();
      END IF;
      SELECT * INTO first_time FROM ${calendar}.task_first(NEW.rule, NEW.zone, NEW.plan);
      NEW.plan := first_time.plan;
      NEW.rule := first_time.rule;
      NEW.due := NULL;
      NEW.wait := NULL;
    ELSIF TG_OP = 'UPDATE' AND NEW.plan IS DISTINCT FROM OLD.plan AND NEW.due IS NOT DISTINCT FROM OLD.due THEN
      NEW.due := CASE WHEN NEW.plan = 'infinity' THEN coalesce(OLD.due, OLD.plan)
        WHEN isfinite(NEW.plan) AND ${calendar}.task_next(NEW.rule, NEW.zone, NEW.plan - interval '1 microsecond') IS DISTINCT FROM NEW.plan
          THEN NEW.plan END;
    END IF;
  END IF;
  -- The trigger that maintains ready may have run before this one.
  IF NEW.state::text = 'PLAN' AND NEW.owner IS NULL THEN
    NEW.ready := NEW.plan <= clock_timestamp();
  END IF;`;
}
