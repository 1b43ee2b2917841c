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
  const place = await readPlace(client, table);
  const columns = checkedColumns(table);
  const statements = optionStatements(table, place, columns, zone === "" ? await sessionZone(client) : zone);
  const digest = createHash("sha256").update(statements.join("\n")).digest("hex").slice(0, 16);
  const triggers = columns.length === 0 ? 0 : 2 * place.relations.length;
  if ((await currentDigest(client, table, place, triggers)) === digest) return false;
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

interface Place {
  readonly partitioned: boolean;
  /**
   * The relations that get the triggers: the table, or before PostgreSQL 13 its leaf partitions, because a partitioned
   * table could not have BEFORE row triggers.
   */
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

/** Returns the digest of the existing function, or null if the function is missing, or if it has too many or too few triggers. */
async function currentDigest(
  client: Client,
  table: TaskTable,
  { relations }: Place,
  triggers: number,
): Promise<string | null> {
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
      triggers,
    ],
  );
  const comment = rows[0]?.comment ?? "";
  return comment.startsWith(ownComment) ? comment.slice(ownComment.length) : null;
}

/** Features that are on although pg-task does not have them yet. */
const unsupportedFeatures = ({ features }: TaskTable): Feature[] => unsupported.filter((each) => features.has(each));

/** The columns whose values the triggers check. */
const checkedColumns = (table: TaskTable): string[] => [
  ...(table.features.has("schedules") ? userColumns("schedules") : []),
  ...unsupportedFeatures(table).flatMap(userColumns),
];

function optionStatements(
  table: TaskTable,
  { partitioned, relations }: Place,
  columns: readonly string[],
  zone: string,
): string[] {
  const schedules = table.features.has("schedules");
  const refused = unsupportedFeatures(table).flatMap(userColumns);
  const name = `${identifier(table.schema)}.${identifier(table.optionsFunction)}`;
  const drop = relations.flatMap((relation) =>
    [table.optionsInsertTrigger, table.optionsUpdateTrigger].map(
      (trigger) => `DROP TRIGGER IF EXISTS ${identifier(trigger)} ON ${relation}`,
    ),
  );
  const create = `CREATE OR REPLACE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS ${literal(functionBody(table, { schedules, refused, zone, partitioned }))}`;
  if (columns.length === 0) return [create, ...drop];
  const isUsed = `num_nonnulls(${columns.map((column) => `NEW.${identifier(column)}`).join(", ")}) > 0`;
  const wasUsed = schedules ? " OR OLD.rule IS NOT NULL OR OLD.due IS NOT NULL" : "";
  const watched = (schedules ? [...columns, "plan", "repeat", "drift"] : columns).map(identifier).join(", ");
  return [
    create,
    ...drop,
    ...relations.flatMap((relation) => [
      `CREATE TRIGGER ${identifier(table.optionsInsertTrigger)} BEFORE INSERT ON ${relation} FOR EACH ROW
  WHEN (${isUsed}) EXECUTE FUNCTION ${name}()`,
      `CREATE TRIGGER ${identifier(table.optionsUpdateTrigger)}
  BEFORE UPDATE${partitioned ? "" : ` OF ${watched}`} ON ${relation} FOR EACH ROW
  WHEN (${isUsed}${wasUsed}) EXECUTE FUNCTION ${name}()`,
    ]),
  ];
}

interface BodyOptions {
  readonly schedules: boolean;
  readonly refused: readonly string[];
  readonly zone: string;
  readonly partitioned: boolean;
}

/**
 * SQL of the function's body. Rows that the manager writes are already checked and planned, so they are left as they
 * are. Any session can claim to be the manager; a role that does so can only give its own tasks a rule that fails when
 * the next run is planned.
 *
 * If an UPDATE moves a row to another partition, the server also fires the INSERT trigger of that partition. The row has
 * passed the UPDATE trigger by then.
 */
function functionBody(table: TaskTable, { schedules, refused, zone, partitioned }: BodyOptions): string {
  const moved = `
  IF TG_OP = 'UPDATE' THEN
    PERFORM set_config('pgtask.updated', NEW.id::text, true);
  ELSIF current_setting('pgtask.updated', true) = NEW.id::text THEN
    PERFORM set_config('pgtask.updated', '', true);
    RETURN NEW;
  END IF;`;
  return `
DECLARE
  first_time record;
  rule_changed boolean := true;
  plan_changed boolean := false;
  is_computing boolean := false;
  is_waiting boolean;
BEGIN
  IF current_setting('pgtask.manager', true) = 'on' THEN
    RETURN NEW;
  END IF;${partitioned ? moved : ""}${refused.map(refusal).join("")}${schedules ? scheduleBody(table, zone) : ""}
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
 * If a user moves the plan of a waiting row, the schedule goes on from the new plan, which \`due\` records unless it is a
 * time of the rule anyway. A row that is planned for infinity is paused, and \`due\` keeps its place in the schedule.
 *
 * If a user changes the rule or the plan while a session runs the row's query, the answer would be wrong. The state PLAN
 * makes the manager cancel the query and plan the row again.
 */
function scheduleBody({ schema }: TaskTable, zone: string): string {
  const calendar = identifier(schema);
  return `
  IF TG_OP = 'UPDATE' THEN
    rule_changed := (NEW.rule, NEW.zone) IS DISTINCT FROM (OLD.rule, OLD.zone);
    plan_changed := NEW.plan IS DISTINCT FROM OLD.plan AND NEW.due IS NOT DISTINCT FROM OLD.due;
    is_computing := OLD.wait IS NOT NULL AND OLD.wait < 0 AND NEW.owner IS NOT NULL AND NEW.state::text IN ('TAKE', 'WORK');
    IF is_computing AND (rule_changed OR plan_changed) THEN
      NEW.state := 'PLAN';
    END IF;
    IF rule_changed THEN
      -- The trigger that wakes the manager fires only for an UPDATE OF plan or state.
      PERFORM pg_notify(concat('pg_task_', coalesce(pg_partition_root(TG_RELID)::oid, TG_RELID)), '');
    END IF;
  END IF;
  IF NEW.rule IS NULL THEN
    IF NEW.zone IS NOT NULL THEN
      RAISE EXCEPTION 'zone is set without rule' USING ERRCODE = 'invalid_parameter_value',
        HINT = 'The zone is that of the rule.';
    ELSIF NEW.catchup AND NEW.drift AND NEW.repeat > interval '0' THEN
      RAISE EXCEPTION 'catchup and drift exclude each other' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF TG_OP = 'UPDATE' AND rule_changed THEN
      NEW.wait := NULL;
      NEW.due := NULL;
    ELSIF plan_changed THEN
      NEW.due := CASE WHEN NEW.plan = 'infinity' AND NEW.repeat > interval '0' THEN coalesce(OLD.due, OLD.plan) END;
    END IF;
    RETURN NEW;
  END IF;
  IF NEW.repeat > interval '0' THEN
    RAISE EXCEPTION 'rule and repeat exclude each other' USING ERRCODE = 'invalid_parameter_value';
  ELSIF pg_typeof(NEW.plan) <> 'timestamptz'::regtype THEN
    RAISE EXCEPTION 'rule needs a column plan of type timestamp with time zone, not %', pg_typeof(NEW.plan)
      USING ERRCODE = 'feature_not_supported';
  END IF;
  is_waiting := NEW.state::text = 'PLAN' AND (NEW.owner IS NULL OR is_computing);
  IF rule_changed AND is_waiting AND TG_OP = 'UPDATE' AND NOT plan_changed AND NEW.plan <> 'infinity' THEN
    NEW.plan := statement_timestamp();
  END IF;
  IF ${calendar}.task_rule_kind(NEW.rule) = 'query' THEN
    IF NEW.zone IS NOT NULL THEN
      RAISE EXCEPTION 'zone is set for a rule that is a query' USING ERRCODE = 'invalid_parameter_value',
        HINT = 'Use AT TIME ZONE in the query.';
    END IF;
    IF rule_changed AND is_waiting THEN
      NEW.wait := -1;
      NEW.due := NULL;
    ELSIF plan_changed AND NEW.plan = 'infinity' THEN
      NEW.due := coalesce(OLD.due, OLD.plan);
    ELSIF plan_changed AND NOT (coalesce(OLD.wait < 0, false)
      AND (OLD.plan = 'infinity' OR OLD.state::text NOT IN ('PLAN', 'TAKE', 'WORK'))) THEN
      -- The row runs at the given time. A row that goes on after a pause or an error runs its query first.
      NEW.due := NULL;
      NEW.wait := NULL;
    END IF;
  ELSE
    NEW.zone := coalesce(NEW.zone, ${calendar}.task_rule_zone(NEW.rule), nullif(current_setting('pg_task.zone', true), ''), ${literal(zone)});
    IF rule_changed AND is_waiting THEN
      SELECT * INTO first_time FROM ${calendar}.task_first(NEW.rule, NEW.zone, NEW.plan);
      NEW.plan := first_time.plan;
      NEW.rule := first_time.rule;
      NEW.due := NULL;
      NEW.wait := NULL;
    ELSIF rule_changed AND TG_OP = 'UPDATE' THEN
      -- The rule is used when the run has ended, and a recurrence rule begins now.
      NEW.rule := (${calendar}.task_first(NEW.rule, NEW.zone, statement_timestamp())).rule;
      NEW.wait := NULL;
    ELSIF rule_changed THEN
      PERFORM ${calendar}.task_rule_check(NEW.rule, NEW.zone);
    ELSIF plan_changed THEN
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
