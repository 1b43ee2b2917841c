import type { Client } from "../../../shared/postgres/client.js";
import { identifier, literal } from "../../../shared/postgres/quoting.js";
import { PgTaskError } from "../../../shared/errors.js";
import { firstMigration, render } from "../migrations.js";
import type { TaskTable } from "../taskTable.js";
import type { Layout } from "./layout.js";

/** From here on a row trigger of a partitioned table is one of its partitions' as well. */
const inheritedSince = 130_000;

interface Trigger {
  readonly name: string;
  readonly perRow: boolean;
  /** The statement that makes it on a relation, given quoted. */
  readonly statement: (relation: string) => string;
}

/** A trigger that some relation lacks. */
export interface MissingTrigger {
  readonly relation: string;
  readonly trigger: Trigger;
}

/** Makes the functions of the first migration; of a partitioned table they have to name the root. */
export async function makeFunctions(
  client: Client,
  table: TaskTable,
  { kind }: Layout,
): Promise<void> {
  const statements = firstMigration.filter((each) =>
    /^(?:CREATE OR REPLACE|COMMENT ON) FUNCTION/.test(each),
  );
  for (const statement of statements) {
    const root = `pg_catalog.to_regclass(${literal(table.qualified)})::pg_catalog.oid`;
    const text = render(statement, table);
    await client.query(kind === "p" ? text.replaceAll("TG_RELID", () => root) : text);
  }
}

/** The triggers that the table has to have, `condition` being the fill trigger's, if it needs one. */
export function wantedTriggers(table: TaskTable, condition: string | null): Trigger[] {
  const own = firstMigration
    .filter((each) => each.startsWith("CREATE TRIGGER"))
    .map((each) => {
      const [, place = ""] = /^CREATE TRIGGER :"(\w+)"/.exec(each) ?? [];
      return {
        name: new Map<string, string>(Object.entries(table)).get(place) ?? place,
        perRow: each.includes("FOR EACH ROW"),
        statement: (relation: string) =>
          render(each.replace(':"schema".:"table"', "@"), table).replace("@", () => relation),
      };
    });
  if (condition === null) return own;
  const name = identifier(table.fill);
  const fill = {
    name: table.fill,
    perRow: true,
    statement: (relation: string) =>
      `CREATE TRIGGER ${name} BEFORE INSERT OR UPDATE ON ${relation} FOR EACH ROW WHEN (${condition})
       EXECUTE FUNCTION ${identifier(table.schema)}.${name}()`,
  };
  return [...own, fill];
}

/**
 * Which of them are missing where. Statements that name a partition fire that one's own statement
 * triggers only, and before PostgreSQL 13 row triggers can be but the leaves' own.
 *
 * @param condition of the fill trigger; null when the table needs none, or its own is to be kept
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
  const there = new Set(
    rows.map((row) => `${identifier(row.schema)}.${identifier(row.relation)} ${row.name}`),
  );
  const has = (relation: string, name: string): boolean => there.has(`${relation} ${name}`);
  const inherited = (rows[0]?.version ?? 0) >= inheritedSince;
  return wantedTriggers(table, condition).flatMap((trigger) => {
    const leaves = partitions.filter(({ isLeaf }) => isLeaf).map(({ qualified }) => qualified);
    const ownOnLeaves =
      !has(table.qualified, trigger.name) && leaves.some((leaf) => has(leaf, trigger.name));
    const relations =
      kind !== "p" || (trigger.perRow && inherited && !ownOnLeaves)
        ? [table.qualified]
        : trigger.perRow
          ? leaves
          : [table.qualified, ...partitions.map(({ qualified }) => qualified)];
    return relations
      .filter((relation) => !has(relation, trigger.name))
      .map((relation) => ({ relation, trigger }));
  });
}

/** Takes away what the extension called as pg-task does: it makes its own again when it is back. */
export async function replaceExtensionsTrigger(client: Client, table: TaskTable): Promise<void> {
  const { rows } = await client.query<{ relation: string; ours: boolean }>(
    `SELECT t.tgrelid::regclass::text AS relation,
       t.tgfoid = coalesce(to_regproc($2)::oid, 0) AS ours
     FROM pg_trigger AS t WHERE t.tgname = $3 AND NOT t.tgisinternal
       AND (t.tgrelid = $1::regclass OR t.tgrelid IN (SELECT relid FROM pg_partition_tree($1::regclass)))`,
    [table.qualified, `${identifier(table.schema)}.${identifier(table.wakeUp)}`, table.wakeUp],
  );
  for (const { relation, ours } of rows) {
    if (!ours) {
      throw new PgTaskError(
        "SCHEMA_INCOMPATIBLE",
        `${relation} has a trigger ${identifier(table.wakeUp)} of its own, which is the name of pg-task's: rename it`,
      );
    }
    await client.query(`DROP TRIGGER ${identifier(table.wakeUp)} ON ${relation}`);
  }
}
