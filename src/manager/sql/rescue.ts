import type { Client } from "../../shared/database.js";
import { ownerSql } from "../../shared/identity.js";
import type { Shape } from "../shape.js";
import type { TaskTable } from "../table.js";
import { repeatInsert } from "./repeat.js";

/** A task that some session has. */
export interface OwnedRow {
  readonly id: string;
  readonly owner: string;
  readonly hash: number;
}

/** An id is a number where the table's own column is an integer. */
type FoundRow = Omit<OwnedRow, "id"> & { readonly id: string | number };

const asOwned = (rows: readonly FoundRow[]): OwnedRow[] =>
  rows.map((row) => ({ ...row, id: String(row.id) }));

/** Every task that some session has, whoever started it. Reads the whole table. */
export async function ownedRows(client: Client, table: TaskTable): Promise<OwnedRow[]> {
  const { rows } = await client.query<FoundRow>({
    name: "owned rows",
    text: `SELECT id, owner, hash FROM ${table.qualified} WHERE owner IS NOT NULL`,
  });
  return asOwned(rows);
}

/** Those of `ids` that still name an owner. */
export async function stillOwned(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
): Promise<OwnedRow[]> {
  const { rows } = await client.query<FoundRow>({
    name: "still owned",
    text: `SELECT id, owner, hash FROM ${table.qualified} WHERE id = ANY ($1::bigint[]) AND owner IS NOT NULL`,
    values: [ids],
  });
  return asOwned(rows);
}

/**
 * Those of `named` whose server process is gone. One that is there but whose start may not be seen
 * counts as alive. This must be a statement of its own: the list of server processes is not of the
 * statement's snapshot, and read together with rows it would take a run that committed in between
 * for a dead one.
 */
export async function deadOwners(client: Client, named: readonly string[]): Promise<string[]> {
  const { rows } = await client.query<{ owner: string }>({
    name: "dead owners",
    text: `
SELECT o.owner FROM unnest($1::text[]) AS o(owner)
WHERE NOT EXISTS (
  SELECT FROM pg_stat_activity AS a
  WHERE a.pid::text = split_part(o.owner, ' ', 1)
    AND (a.backend_start IS NULL OR ${ownerSql("a")} = o.owner))`,
    values: [named],
  });
  return rows.map((row) => row.owner);
}

/** Ends the server processes of these, as far as they are of our own role. */
export async function endOwners(client: Client, named: readonly string[]): Promise<void> {
  await client.query({
    name: "end owners",
    text: `
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a
WHERE ${ownerSql("a")} = ANY ($1::text[]) AND a.usename = current_user`,
    values: [named],
  });
}

/**
 * Returns those of `ids` that dead owners have to PLAN. With `blame`, for a task whose own run took
 * its session down while process and server lived on: that is counted, and after `crashes` of them
 * the task ends as FAIL, and one that repeats is planned again. Rows that somebody has locked are
 * passed over.
 *
 * @returns how many.
 */
export async function rescue(
  client: Client,
  table: TaskTable,
  shape: Shape,
  request: {
    readonly dead: readonly string[];
    readonly ids: readonly string[];
    readonly blame: boolean;
    readonly crashes: number;
  },
): Promise<number> {
  const { rowCount } = await client.query({
    name: `rescue ${shape.name}`,
    text: rescueStatement(table, shape),
    values: [request.dead, request.ids, request.blame ? 1 : 0, request.crashes],
  });
  return rowCount ?? 0;
}

function rescueStatement(table: TaskTable, shape: Shape): string {
  const { qualified, stateType } = table;
  return `
WITH lost AS MATERIALIZED (
  SELECT id, state::text AS state, crash + $3::integer AS crash,
    state::text = 'WORK' AND $3::integer > 0 AND crash + $3::integer >= $4::integer AS failed
  FROM ${qualified} WHERE id = ANY ($2::bigint[]) AND owner = ANY ($1::text[])
  FOR NO KEY UPDATE SKIP LOCKED
), failed AS (
  SELECT id, now() AS stop FROM lost WHERE failed
), repeated AS (${repeatInsert(table, shape, "failed")}
)
UPDATE ${qualified} AS t SET owner = NULL,
  crash = CASE WHEN l.state = 'WORK' THEN l.crash ELSE t.crash END,
  state = CASE WHEN l.failed THEN 'FAIL' WHEN l.state IN ('TAKE', 'WORK') THEN 'PLAN' ELSE l.state END::${stateType},
  pid = CASE WHEN l.failed THEN t.pid END,
  take = CASE WHEN l.failed THEN t.take END,
  start = CASE WHEN l.failed THEN t.start END,
  stop = CASE WHEN l.failed THEN now() ELSE t.stop END,
  error = CASE WHEN l.failed THEN concat('ERROR:  task took its own session down ', l.crash, ' times') ELSE t.error END,
  output = CASE WHEN l.failed THEN '' ELSE t.output END,
  ready = CASE WHEN l.failed THEN NULL WHEN l.state IN ('TAKE', 'WORK', 'PLAN') THEN t.plan <= now() END
FROM lost AS l WHERE t.id = l.id AND t.id = ANY (ARRAY(SELECT id FROM lost))`;
}
