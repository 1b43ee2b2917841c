import assert from "node:assert/strict";
import type { Client } from "../../src/shared/postgres/client.js";
import { literal } from "../../src/shared/postgres/quoting.js";
import { stubClient } from "./stubClient.js";

interface PlanNode {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly "Index Cond"?: string;
  readonly Plans?: readonly PlanNode[];
}

const flatten = (node: PlanNode): PlanNode[] => [node, ...(node.Plans ?? []).flatMap(flatten)];

/** Formats a value as an untyped literal, so that it gets the parameter's type. */
function asArgument(value: unknown): string {
  if (!Array.isArray(value)) return literal(String(value));
  const items = value.map((item) => (item === null ? "NULL" : JSON.stringify(String(item))));
  return literal(`{${items.join(",")}}`);
}

/** Returns the nodes of the plan of the first statement that a function of the manager sends. */
export async function plannedNodes(
  manager: Client,
  work: (stub: Client) => Promise<unknown>,
  mode: "auto" | "force_custom_plan" | "force_generic_plan" = "auto",
): Promise<PlanNode[]> {
  const statements: { readonly text: string; readonly values: readonly unknown[] }[] = [];
  await work(
    stubClient(async (text, values) => {
      statements.push({ text, values });
      return { rows: [], rowCount: 0 };
    }),
  );
  const [statement] = statements;
  assert.ok(statement);
  await manager.query(`SET plan_cache_mode = ${mode}`);
  await manager.query("DEALLOCATE ALL");
  await manager.query(`PREPARE planned AS ${statement.text}`);
  const given = statement.values.length === 0 ? "" : `(${statement.values.map(asArgument).join(", ")})`;
  const { rows } = await manager.query(`EXPLAIN (FORMAT JSON) EXECUTE planned${given}`);
  return flatten(rows[0]["QUERY PLAN"][0].Plan);
}
