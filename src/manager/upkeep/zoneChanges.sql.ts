import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "../schema/taskTable.js";
import { zoneCheckRows } from "../tuning.js";

/** The last checked row, as text from the server. */
export interface Position {
  readonly plan: string;
  readonly id: string;
}

export interface Replanned {
  readonly id: string;
  readonly rule: string;
  readonly zone: string | null;
  readonly from: string;
  readonly to: string;
}

/**
 * Checks the planned tasks with a rule that follow `position`, up to `zoneCheckRows` of them, and replans those whose
 * plan is no longer a time of the rule. Tasks whose plan was moved, by a user or a pause, are left alone.
 *
 * @returns the replanned tasks, and the position of the last checked row, or null if there are no more rows. A locked
 *   row is not replanned.
 */
export async function replanMoved(
  client: Client,
  table: TaskTable,
  position: Position,
): Promise<{ readonly replanned: readonly Replanned[]; readonly next: Position | null }> {
  const { rows } = await client.query<Omit<Replanned, "from"> & { from: string; to: string | null; done: boolean }>({
    name: "replan moved",
    text: replanStatement(table),
    values: [position.plan, position.id],
  });
  const last = rows.length < zoneCheckRows ? undefined : rows.at(-1);
  return {
    replanned: rows.flatMap(({ done, id, rule, zone, from, to }) =>
      done && to !== null ? { id, rule, zone, from, to } : [],
    ),
    next: last === undefined ? null : { plan: last.from, id: last.id },
  };
}

function replanStatement({ qualified, schema }: TaskTable): string {
  return `
WITH checked AS MATERIALIZED (
  SELECT c.*, ${identifier(schema)}.task_replanned(c.rule, c.zone, c.plan) AS moved FROM (
    SELECT id, rule, zone, plan FROM ${qualified}
    WHERE NOT ready AND plan >= $1::timestamptz AND plan < 'infinity' AND (plan, id) > ($1::timestamptz, $2::bigint)
      AND rule IS NOT NULL AND due IS NULL AND wait IS NULL
    ORDER BY plan, id LIMIT ${zoneCheckRows}
  ) AS c
), locked AS MATERIALIZED (
  SELECT t.id FROM ${qualified} AS t JOIN checked AS c ON c.id = t.id
  WHERE t.id = ANY (ARRAY(SELECT id FROM checked WHERE moved IS NOT NULL)) AND t.ready IS FALSE AND t.plan = c.plan
  FOR NO KEY UPDATE OF t SKIP LOCKED
), replanned AS (
  UPDATE ${qualified} AS t SET plan = c.moved, ready = c.moved <= now()
  FROM checked AS c WHERE t.id = c.id AND t.id = ANY (ARRAY(SELECT id FROM locked))
  RETURNING t.id
)
SELECT c.id::text AS id, c.rule, c.zone, c.plan::text AS "from", c.moved::text AS "to", c.id IN (SELECT id FROM replanned) AS done
FROM checked AS c ORDER BY c.plan, c.id`;
}
