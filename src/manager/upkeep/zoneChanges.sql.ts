import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { shiftOf } from "../schema/jitter.sql.js";
import { hasSchedule } from "../schema/schedulesView.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

export interface Replanned {
  readonly id: string;
  readonly rule: string;
  readonly zone: string | null;
  readonly from: string;
  readonly to: string;
}

/** SQL condition: the plan was computed from a rule, and has not been moved since. */
export const isComputed = "t.rule IS NOT NULL AND t.due IS NULL AND t.wait IS NULL AND isfinite(t.plan)";

/** SQL of the plan that the row `t` should have. Null if the one that it has is a time of its rule. */
export const replannedSql = (schema: string): string =>
  `(${identifier(schema)}.task_replanned(t.rule, t.zone, t.plan - ${shiftOf("t")}) + ${shiftOf("t")})`;

/** The planned tasks whose plans depend on a time zone, by the condition of the index of schedules. */
export async function plannedByRule(client: Client, { qualified }: TaskTable): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>(
    `SELECT t.id::text AS id FROM ${qualified} AS t WHERE NOT t.ready AND ${hasSchedule("t")} AND ${isComputed}`,
  );
  return rows.map(({ id }) => id);
}

/** Leaves alone tasks whose plans were moved, by a user or a pause, and locked rows. Returns the replanned tasks. */
export async function replanOutdated(client: Client, table: TaskTable, ids: readonly string[]): Promise<Replanned[]> {
  const { rows } = await client.query<Replanned>({
    name: "replan moved",
    text: replanStatement(table),
    values: [ids],
  });
  return rows;
}

function replanStatement({ qualified, schema }: TaskTable): string {
  return `
WITH checked AS MATERIALIZED (
  SELECT t.id, t.rule, t.zone, t.plan, ${replannedSql(schema)} AS moved
  FROM ${qualified} AS t WHERE t.id = ANY ($1::bigint[]) AND NOT t.ready AND ${isComputed}
), locked AS MATERIALIZED (
  SELECT t.id FROM ${qualified} AS t JOIN checked AS c ON c.id = t.id
  WHERE t.id = ANY (ARRAY(SELECT id FROM checked WHERE moved IS NOT NULL)) AND t.ready IS FALSE AND t.plan = c.plan
  FOR NO KEY UPDATE OF t SKIP LOCKED
), replanned AS (
  UPDATE ${qualified} AS t SET plan = c.moved, ready = c.moved <= now()
  FROM checked AS c WHERE t.id = c.id AND t.id = ANY (ARRAY(SELECT id FROM locked))
  RETURNING t.id
)
SELECT c.id::text AS id, c.rule, c.zone, c.plan::text AS "from", c.moved::text AS "to"
FROM checked AS c WHERE c.id IN (SELECT id FROM replanned)`;
}
