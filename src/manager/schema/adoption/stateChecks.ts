import { sqlState, type Client } from "../../../shared/postgres/client.js";
import { identifier, literal } from "../../../shared/postgres/quoting.js";
import { states } from "../stateType.js";
import type { TaskTable } from "../taskTable.js";
import type { FoundColumn, Layout } from "./layout.js";

/** A check of the table's, or of the domain that its column state is of. */
interface StateCheck {
  readonly name: string;
  readonly expression: string;
  /** The domain, quoted; null for a check of the table's own. */
  readonly domain: string | null;
  /** Whether it looks at nothing but the state. */
  readonly onlyState: boolean;
  /** What stands behind it where it is not inherited, or not valid for the rows that are there. */
  readonly suffix: string;
}

/** A check that no row passes in some of the states, and the statements that let them pass. */
export interface ForbiddenStates {
  readonly check: string;
  readonly domain: string | null;
  readonly states: readonly string[];
  readonly statement: string;
}

/**
 * Checks that let no row have some of the states that tasks go through. What other columns decide is
 * left to when it happens; so are checks of partitions, of which one may keep what has ended.
 */
export async function forbiddenStates(
  client: Client,
  table: TaskTable,
  layout: Layout,
): Promise<ForbiddenStates[]> {
  const column = layout.columns.get("state");
  if (column === undefined) return [];
  // Labels that an enum lacks are added, and nothing can be asked of them before.
  const known = states.filter((state) => column.kind !== "e" || column.labels.includes(state));
  const found: ForbiddenStates[] = [];
  for (const check of await readChecks(client, table)) {
    const forbidden: string[] = [];
    for (const state of known) {
      if (await forbids(client, table, layout, check, valueOf(column, state))) {
        forbidden.push(state);
      }
    }
    if (forbidden.length === 0) continue;
    const { name, domain } = check;
    const statement = allowing(table, check, forbidden);
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

/** SQL of a state as the column has it. */
function valueOf({ base, baseType }: FoundColumn, state: string): string {
  // By its other name, character, it would be cut to one.
  return `${literal(state)}::${base === "bpchar" ? "bpchar" : baseType}`;
}

/**
 * Whether no row passes the check with this state. One that looks at nothing else is asked; of
 * another the server's planner is, which knows only that the other columns may hold anything.
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
    const found = await ask(client, passes(`(SELECT ${value} AS ${name}) AS task`));
    return found?.length === 0;
  }
  const others = [...layout.columns.keys()].filter((name) => name !== "state").map(identifier);
  const anyRow = `SELECT ${others.join(", ")}, ${value} AS state FROM unnest(NULL::${table.qualified}[]) AS task`;
  const found = await ask(client, `EXPLAIN (FORMAT JSON) ${passes(`(${anyRow}) AS task`)}`);
  return found?.[0]?.["QUERY PLAN"]?.[0]?.Plan["One-Time Filter"] === "false";
}

/** What EXPLAIN answers. */
interface Planned {
  readonly "QUERY PLAN"?: readonly { readonly Plan: Readonly<Record<string, unknown>> }[];
}

/** The rows; null when the server has an error for them, which says nothing for sure. */
async function ask(client: Client, query: string): Promise<readonly Planned[] | null> {
  // A check may call functions that write.
  await client.query("BEGIN READ ONLY");
  try {
    const { rows } = await client.query<Planned>(query);
    return rows;
  } catch (error) {
    if (sqlState(error) === null) throw error;
    return null;
  } finally {
    await client.query("ROLLBACK");
  }
}

/** The same check, but for these states. */
function allowing(
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
