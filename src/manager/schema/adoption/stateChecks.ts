import { sqlState, type Client } from "../../../shared/postgres/client.js";
import { identifier, literal } from "../../../shared/postgres/quoting.js";
import { taskStates } from "../../../shared/taskState.js";
import type { TaskTable } from "../taskTable.js";
import type { FoundColumn, Layout } from "./layout.js";

interface StateCheck {
  readonly name: string;
  readonly expression: string;
  /** The name of the domain of `state`, quoted. Null if the check belongs to the table. */
  readonly domain: string | null;
  readonly onlyState: boolean;
  readonly suffix: string;
}

/** A check that rejects every row in certain states, and the statements that make it allow them. */
export interface ForbiddenStates {
  readonly check: string;
  readonly domain: string | null;
  readonly states: readonly string[];
  readonly statement: string;
}

/** Checks that forbid some state to every row. Not those of partitions, of which one may be for finished tasks. */
export async function forbiddenStates(client: Client, table: TaskTable, layout: Layout): Promise<ForbiddenStates[]> {
  const column = layout.columns.get("state");
  if (column === undefined) return [];
  // States that the enum lacks are added later. Until then, a query cannot use them.
  const known = taskStates.filter((state) => column.kind !== "e" || column.labels.includes(state));
  const found: ForbiddenStates[] = [];
  for (const check of await readChecks(client, table)) {
    const forbidden: string[] = [];
    for (const state of known) {
      if (await forbids(client, table, layout, check, stateValue(column, state))) {
        forbidden.push(state);
      }
    }
    if (forbidden.length === 0) continue;
    const { name, domain } = check;
    const statement = allowingStatement(table, check, forbidden);
    found.push({ check: name, domain, states: forbidden, statement });
  }
  return found;
}

async function readChecks(client: Client, table: TaskTable): Promise<StateCheck[]> {
  const { rows } = await client.query<StateCheck>(
    `WITH RECURSIVE state AS (
       SELECT attnum, atttypid FROM pg_attribute WHERE attrelid = $1::regclass AND attname = 'state'
     ), layer AS (
       SELECT atttypid AS type FROM state
       UNION ALL
       SELECT t.typbasetype FROM layer AS l JOIN pg_type AS t ON t.oid = l.type WHERE t.typtype = 'd'
     )
     SELECT c.conname AS name, pg_get_expr(c.conbin, c.conrelid) AS expression,
       CASE WHEN c.contypid <> 0 THEN format_type(c.contypid, NULL) END AS domain,
       c.contypid <> 0 OR c.conkey = ARRAY[s.attnum] AS "onlyState",
       CASE WHEN c.connoinherit AND c.contypid = 0 THEN ' NO INHERIT' ELSE '' END
         || CASE WHEN c.convalidated THEN '' ELSE ' NOT VALID' END AS suffix
     FROM state AS s, pg_constraint AS c
     WHERE c.contype = 'c'
       AND (c.conrelid = $1::regclass AND s.attnum = ANY (c.conkey) OR c.contypid IN (SELECT type FROM layer))
       -- Servers before 18 enforce them all.
       AND coalesce(to_jsonb(c) ->> 'conenforced', 'true') = 'true'
     ORDER BY c.contypid, c.conname`,
    [table.qualified],
  );
  return rows;
}

function stateValue({ base, baseType }: FoundColumn, state: string): string {
  // A cast to `character` without a length would truncate the state to one character.
  return `${literal(state)}::${base === "bpchar" ? "bpchar" : baseType}`;
}

/**
 * Whether every row in this state fails the check. One that mentions only the state is evaluated. For any other, the
 * planner reduces the condition to false if it fails whatever the other columns hold.
 */
async function forbids(
  client: Client,
  table: TaskTable,
  layout: Layout,
  { expression, domain, onlyState }: StateCheck,
  value: string,
): Promise<boolean> {
  const passes = (from: string): string => `SELECT FROM ${from} WHERE (${expression}) IS NOT FALSE`;
  if (onlyState) {
    const name = domain === null ? "state" : "value";
    const found = await tryQuery(client, passes(`(SELECT ${value} AS ${name}) AS task`));
    return found?.length === 0;
  }
  const others = [...layout.columns.keys()].filter((name) => name !== "state").map(identifier);
  const anyRow = `SELECT ${others.join(", ")}, ${value} AS state FROM unnest(NULL::${table.qualified}[]) AS task`;
  const found = await tryQuery(client, `EXPLAIN (FORMAT JSON) ${passes(`(${anyRow}) AS task`)}`);
  return found?.[0]?.["QUERY PLAN"]?.[0]?.Plan["One-Time Filter"] === "false";
}

interface ExplainRow {
  readonly "QUERY PLAN"?: readonly { readonly Plan: Readonly<Record<string, unknown>> }[];
}

/** Read-only, because a check may call functions that write. Null if the query fails, which shows nothing. */
async function tryQuery(client: Client, query: string): Promise<readonly ExplainRow[] | null> {
  await client.query("BEGIN READ ONLY");
  try {
    const { rows } = await client.query<ExplainRow>(query);
    return rows;
  } catch (error) {
    if (sqlState(error) === null) throw error;
    return null;
  } finally {
    await client.query("ROLLBACK");
  }
}

function allowingStatement(
  { qualified }: TaskTable,
  { name, expression, domain, suffix }: StateCheck,
  forbidden: readonly string[],
): string {
  const constraint = identifier(name);
  const allowed = `IN (${forbidden.map(literal).join(", ")})`;
  if (domain === null) {
    return `ALTER TABLE ${qualified} DROP CONSTRAINT ${constraint}, ADD CONSTRAINT ${constraint} CHECK ((${expression}) OR state ${allowed})${suffix}`;
  }
  return `ALTER DOMAIN ${domain} DROP CONSTRAINT ${constraint};\nALTER DOMAIN ${domain} ADD CONSTRAINT ${constraint} CHECK ((${expression}) OR VALUE ${allowed})${suffix}`;
}
