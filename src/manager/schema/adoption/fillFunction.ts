import type { FileParameters } from "../../../shared/config/parameterTable.js";
import type { Client } from "../../../shared/postgres/client.js";
import { identifier, literal } from "../../../shared/postgres/quoting.js";
import { parameterColumns, parameterDefault } from "../columnDefaults.js";
import type { TaskTable } from "../taskTable.js";
import type { FoundColumn, Layout } from "./layout.js";

interface FillRule {
  readonly column: string;
  readonly condition: string;
  readonly value: string;
}

const hashValue = `pg_catalog.hashtext(NEW."group"::pg_catalog.text OPERATOR(pg_catalog.||) COALESCE(NEW.remote::pg_catalog.text, ''))`;

/**
 * The rules of the fill trigger, which completes the rows of an adopted table: it sets the hash and replaces nulls. A
 * generated column `hash` would rewrite the whole table, and NOT NULL would reject rows that were accepted before.
 */
function fillRules(columns: ReadonlyMap<string, FoundColumn>, parameters: FileParameters): FillRule[] {
  const nullable = (name: string): FoundColumn[] => {
    const found = columns.get(name);
    return found === undefined || found.notNull || found.generated !== null ? [] : [found];
  };
  const otherDefaults: readonly (readonly [string, string])[] = [
    ["plan", "pg_catalog.statement_timestamp()"],
    ["input", "''"],
    ["crash", "0"],
  ];
  const nulls = [
    ...parameterColumns.flatMap((name) =>
      nullable(name).map(({ type }) => [name, parameterDefault(name, type, parameters)] as const),
    ),
    ...otherDefaults.filter(([name]) => nullable(name).length > 0),
  ].map(([column, value]) => ({ column, condition: `NEW.${identifier(column)} IS NULL`, value }));
  const hash =
    columns.get("hash")?.generated === null
      ? [{ column: "hash", condition: `NEW.hash IS DISTINCT FROM ${hashValue}`, value: hashValue }]
      : [];
  // The rule for `hash` comes last, because the hash is computed from columns that the other rules fill in.
  return [...nulls, ...hash];
}

/** The WHEN condition of the fill trigger, or null if the table needs none. */
export function fillCondition({ columns }: Layout, parameters: FileParameters): string | null {
  const conditions = fillRules(columns, parameters).map(({ condition }) => condition);
  return conditions.length === 0 ? null : conditions.join(" OR ");
}

export async function ensureFillFunction(
  client: Client,
  { qualifiedFill: name }: TaskTable,
  { columns }: Layout,
  parameters: FileParameters,
): Promise<void> {
  const steps = fillRules(columns, parameters).map(
    ({ column, condition, value }) => `  IF ${condition} THEN NEW.${identifier(column)} := ${value}; END IF;\n`,
  );
  const body = ` BEGIN\n${steps.join("")}  RETURN NEW;\nEND `;
  const { rowCount } = await client.query("SELECT FROM pg_proc WHERE oid = to_regproc($1) AND prosrc = $2", [
    name,
    body,
  ]);
  if (rowCount !== 0) return;
  await client.query(
    `CREATE OR REPLACE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS ${literal(body)}`,
  );
  await client.query(`COMMENT ON FUNCTION ${name}() IS 'pg-task fill'`);
}
