import type { Client } from "../../shared/postgres/client.js";

/** How many there are; where counting would take long, about how many. */
export interface Count {
  readonly value: number;
  readonly exact: boolean;
}

/** How many rows the planner expects of this. */
export async function estimate(client: Client, source: string): Promise<number> {
  const { rows } = await client.query<{ "QUERY PLAN": [{ Plan: { "Plan Rows": number } }] }>(
    `EXPLAIN (FORMAT JSON) SELECT FROM ${source}`,
  );
  return rows[0]?.["QUERY PLAN"][0].Plan["Plan Rows"] ?? 0;
}
