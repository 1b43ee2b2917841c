import type { Entry } from "../../../shared/config/types.js";
import type { Client } from "../../../shared/postgres/client.js";
import { identifier } from "../../../shared/postgres/quoting.js";
import { PgTaskError } from "../../../shared/errors.js";
import { statements, render } from "../migrations.js";
import type { TaskTable } from "../taskTable.js";
import { ensureFillFunction, fillCondition } from "./fillFunction.js";
import { readLayout, type Layout } from "./layout.js";

/** The first server versions in which partitions inherit BEFORE and AFTER row triggers. */
const inheritanceVersions = { before: 130_000, after: 110_000 } as const;

interface Trigger {
  readonly name: string;
  readonly perRow: boolean;
  readonly inheritedSince: number;
  readonly statement: (relation: string) => string;
}

interface MissingTrigger {
  readonly relation: string;
  readonly trigger: Trigger;
}

/** The triggers of a new table and the fill trigger, unless its WHEN condition is null. */
function requiredTriggers(table: TaskTable, condition: string | null): Trigger[] {
  const initial = statements
    .filter((each) => /^CREATE TRIGGER [^]* ON :"schema"\.:"table"/.test(each))
    .map((each) => {
      const [, key = "", when] = /^CREATE TRIGGER :"(\w+)" (BEFORE|AFTER)/.exec(each) ?? [];
      const perRow = each.includes("FOR EACH ROW");
      return {
        name: new Map<string, string>(Object.entries(table)).get(key) ?? key,
        perRow,
        inheritedSince: perRow ? inheritanceVersions[when === "AFTER" ? "after" : "before"] : Infinity,
        statement: (relation: string) =>
          render(each.replace(':"schema".:"table"', "@"), table).replace("@", () => relation),
      };
    });
  if (condition === null) return initial;
  const fill = {
    name: table.fill,
    perRow: true,
    inheritedSince: inheritanceVersions.before,
    statement: (relation: string) =>
      `CREATE TRIGGER ${identifier(table.fill)} BEFORE INSERT OR UPDATE ON ${relation} FOR EACH ROW WHEN (${condition})
       EXECUTE FUNCTION ${table.qualifiedFill}()`,
  };
  return [...initial, fill];
}

/**
 * A statement that names a partition fires only that partition's statement triggers, so each partition needs its own.
 * Before PostgreSQL 13, only leaf partitions can have BEFORE row triggers.
 *
 * @param condition of the fill trigger; null if the table needs none or keeps its existing one
 */
export async function missingTriggers(
  client: Client,
  table: TaskTable,
  { kind, partitions }: Pick<Layout, "kind" | "partitions">,
  condition: string | null,
): Promise<MissingTrigger[]> {
  const { rows } = await client.query<{
    schema: string;
    relation: string;
    name: string;
    version: number;
  }>(
    `SELECT n.nspname AS schema, c.relname AS relation, t.tgname AS name,
       current_setting('server_version_num')::integer AS version
     FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
     LEFT JOIN pg_trigger AS t ON t.tgrelid = c.oid
     WHERE c.oid = ANY ($1::text[]::regclass[])`,
    [[table.qualified, ...partitions.map(({ qualified }) => qualified)]],
  );
  const existing = new Set(rows.map((row) => `${identifier(row.schema)}.${identifier(row.relation)} ${row.name}`));
  const has = (relation: string, name: string): boolean => existing.has(`${relation} ${name}`);
  const version = rows[0]?.version ?? 0;
  return requiredTriggers(table, condition).flatMap((trigger) => {
    const leaves = partitions.filter(({ isLeaf }) => isLeaf).map(({ qualified }) => qualified);
    const alreadyOnLeaves = !has(table.qualified, trigger.name) && leaves.some((leaf) => has(leaf, trigger.name));
    const relations =
      kind !== "p" || (version >= trigger.inheritedSince && !alreadyOnLeaves)
        ? [table.qualified]
        : trigger.perRow
          ? leaves
          : [table.qualified, ...partitions.map(({ qualified }) => qualified)];
    return relations.filter((relation) => !has(relation, trigger.name)).map((relation) => ({ relation, trigger }));
  });
}

/** Drops the pg_task extension's triggers with a name of pg-task's. It creates them again when it starts. */
export async function dropExtensionTriggers(client: Client, table: TaskTable): Promise<void> {
  const { rows } = await client.query<{ relation: string; isReplaceable: boolean }>(
    `SELECT t.tgrelid::regclass::text AS relation,
       t.tgfoid = coalesce(to_regproc($2)::oid, 0) AS "isReplaceable"
     FROM pg_trigger AS t WHERE t.tgname = $3 AND NOT t.tgisinternal
       AND (t.tgrelid = $1::regclass OR t.tgrelid IN (SELECT relid FROM pg_partition_tree($1::regclass)))`,
    [table.qualified, `${identifier(table.schema)}.${identifier(table.wakeUp)}`, table.wakeUp],
  );
  for (const { relation, isReplaceable } of rows) {
    if (!isReplaceable) {
      throw new PgTaskError(
        "SCHEMA_INCOMPATIBLE",
        `${relation} has a trigger ${identifier(table.wakeUp)} that pg-task did not create: rename it`,
      );
    }
    await client.query(`DROP TRIGGER ${identifier(table.wakeUp)} ON ${relation}`);
  }
}

/** Drops triggers that the table has brought along from another place, to whose table their functions belong. */
export async function dropFormerTriggers(client: Client, table: TaskTable): Promise<void> {
  const { rows } = await client.query<{ text: string }>(
    `SELECT pg_catalog.format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass) AS text
     FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
     JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
     WHERE NOT t.tgisinternal AND (t.tgrelid = $1::regclass OR t.tgrelid IN (SELECT relid FROM pg_partition_tree($1::regclass)))
       AND coalesce(pg_catalog.to_jsonb(t) ->> 'tgparentid', '0') = '0'
       AND pg_catalog.obj_description(p.oid, 'pg_proc') ~ '^pg-task (version|adopting|wake-up|options|fill)'
       AND (n.nspname <> $2 OR p.proname <> ALL ($3::text[]))`,
    [table.qualified, table.schema, [table.readyFunction, table.wakeUp, table.optionsFunction, table.fill]],
  );
  for (const { text } of rows) await client.query(text);
}

/**
 * At each start: determines the type of `state`, and updates the fill function and the triggers of new partitions.
 *
 * @throws PgTaskError SCHEMA_MISSING if a trigger is missing and the entry says `"create": false`.
 */
export async function repairAdopted(client: Client, table: TaskTable, entry: Entry, layout: Layout): Promise<void> {
  const found = await readSummary(client, table);
  if (found === null) return;
  if (found.stateType !== null) table.stateType = found.stateType;
  if (found.kind !== "p" && !found.hasFillTrigger) return;
  const condition = found.hasFillTrigger ? fillCondition(layout, entry.parameters) : null;
  if (condition !== null && entry.create) await ensureFillFunction(client, table, layout, entry.parameters);
  if (found.kind !== "p") return;
  for (const { relation, trigger } of await missingTriggers(client, table, layout, condition)) {
    if (!entry.create) {
      throw new PgTaskError(
        "SCHEMA_MISSING",
        `partition ${relation} lacks the trigger ${trigger.name}, and its entry says "create": false`,
      );
    }
    await client.query(trigger.statement(relation));
  }
}

export async function hasNewPartitions(client: Client, table: TaskTable, { parameters }: Entry): Promise<boolean> {
  const found = await readSummary(client, table);
  if (found?.kind !== "p") return false;
  const layout = await readLayout(client, table);
  const condition = found.hasFillTrigger ? fillCondition(layout, parameters) : null;
  return (await missingTriggers(client, table, layout, condition)).length > 0;
}

interface Summary {
  readonly kind: string;
  /** Whether the table or a partition has the fill trigger, which completes the rows of an adopted table. */
  readonly hasFillTrigger: boolean;
  /** Type of the column `state`, quoted. Null if it is the enum `state` of the table's schema. */
  readonly stateType: string | null;
}

async function readSummary(client: Client, table: TaskTable): Promise<Summary | null> {
  const { rows } = await client.query<Summary>(
    `SELECT c.relkind AS kind,
       EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgname = $2
         AND t.tgrelid IN (SELECT c.oid UNION ALL SELECT relid FROM pg_partition_tree(c.oid))) AS "hasFillTrigger",
       CASE WHEN a.atttypid IS DISTINCT FROM to_regtype($3) THEN format_type(a.atttypid, a.atttypmod) END AS "stateType"
     FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'state'
     WHERE c.oid = $1::regclass`,
    [table.qualified, table.fill, table.stateType],
  );
  return rows[0] ?? null;
}
