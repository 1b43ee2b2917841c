import type { FileParameters } from "../../../shared/config/types.js";
import type { Client } from "../../../shared/postgres/client.js";
import { identifier } from "../../../shared/postgres/quoting.js";
import { parameterColumns, parameterDefault } from "../columnDefaults.js";
import type { TaskTable } from "../taskTable.js";
import type { FoundColumn, Layout } from "./layout.js";

/** What a row may lack in a table that pg-task did not make. */
interface Lack {
  readonly column: string;
  /** SQL that is true of a row that lacks it. */
  readonly when: string;
  readonly value: string;
}

const hashValue = `pg_catalog.hashtext(NEW."group"::pg_catalog.text OPERATOR(pg_catalog.||) COALESCE(NEW.remote::pg_catalog.text, ''))`;

/**
 * A generated `hash` would rewrite the whole table, and NOT NULL where the user has none would refuse
 * what was accepted before. So both are kept by a trigger.
 */
function lacks(columns: ReadonlyMap<string, FoundColumn>, parameters: FileParameters): Lack[] {
  const nullable = (name: string): FoundColumn[] => {
    const found = columns.get(name);
    return found === undefined || found.notNull || found.generated !== null ? [] : [found];
  };
  const otherwise: readonly (readonly [string, string])[] = [
    ["plan", "pg_catalog.statement_timestamp()"],
    ["input", "''"],
    ["crash", "0"],
  ];
  const missing = [
    ...parameterColumns.flatMap((name) =>
      nullable(name).map(({ type }) => [name, parameterDefault(name, type, parameters)] as const),
    ),
    ...otherwise.filter(([name]) => nullable(name).length > 0),
  ].map(([column, value]) => ({ column, when: `NEW.${identifier(column)} IS NULL`, value }));
  const hash =
    columns.get("hash")?.generated === null
      ? [{ column: "hash", when: `NEW.hash IS DISTINCT FROM ${hashValue}`, value: hashValue }]
      : [];
  // Last, since it is made of what may be missing.
  return [...missing, ...hash];
}

/** Condition of the trigger, null when rows lack nothing and there is no need for one. */
export function fillCondition({ columns }: Layout, parameters: FileParameters): string | null {
  const conditions = lacks(columns, parameters).map(({ when }) => when);
  return conditions.length === 0 ? null : conditions.join(" OR ");
}

/** Makes the function, or brings it up to date with the file's parameters. */
export async function ensureFillFunction(
  client: Client,
  { schema, fill }: TaskTable,
  { columns }: Layout,
  parameters: FileParameters,
): Promise<void> {
  const name = `${identifier(schema)}.${identifier(fill)}`;
  const steps = lacks(columns, parameters).map(
    ({ column, when, value }) =>
      `  IF ${when} THEN NEW.${identifier(column)} := ${value}; END IF;\n`,
  );
  const body = ` BEGIN\n${steps.join("")}  RETURN NEW;\nEND `;
  const { rowCount } = await client.query(
    "SELECT FROM pg_proc WHERE oid = to_regproc($1) AND prosrc = $2",
    [name, body],
  );
  if (rowCount !== 0) return;
  let quote = "$function$";
  while (body.includes(quote)) quote = quote.replace("n$", "nn$");
  await client.query(
    `CREATE OR REPLACE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS ${quote}${body}${quote}`,
  );
  await client.query(`COMMENT ON FUNCTION ${name}() IS 'pg-task fill'`);
}
