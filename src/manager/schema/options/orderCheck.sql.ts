import type { Client } from "../../../shared/postgres/client.js";
import type { TaskTable } from "../taskTable.js";
import { isAnySet, refuse, type OptionCheck } from "./optionCheck.js";

const columns = ["after", "upon"];

/**
 * Checks the columns that say which tasks a task waits for. A task can only wait for older ones, so no cycle can be
 * written.
 *
 * A task that waits is planned for infinity, and `due` holds the time for which the user has planned it. A positive
 * `wait` tells the manager to look up the predecessors, and 0 says that it has done so. A plan that a user gives to such
 * a task is stored in `due` as well.
 */
export const orderCheck: OptionCheck = {
  watched: [...columns, "plan"],
  isUsed: isAnySet(columns),
  wasUsed: "OLD.after IS NOT NULL",
  variables: ["not_older bigint", "must_wait boolean"],
  body: `
  IF cardinality(NEW.after) = 0 THEN
    NEW.after := NULL;
  END IF;
  IF NEW.upon IS NOT NULL AND NEW.upon NOT IN ('done', 'fail', 'end') THEN
    RAISE EXCEPTION 'upon must be done, fail or end, not "%"', NEW.upon USING ERRCODE = 'invalid_parameter_value';
  ELSIF NEW.upon IS NOT NULL AND NEW.after IS NULL THEN
    ${refuse("upon is set without after", { hint: "upon says how the tasks in after have to end." })}
  ELSIF array_ndims(NEW.after) > 1 THEN
    ${refuse("after must be an array of one dimension")}
  ELSIF array_position(NEW.after, NULL) IS NOT NULL THEN
    ${refuse("after contains null")}
  ELSIF NEW.after IS NOT NULL AND NEW.wait < 0 THEN
    ${refuse("after and a rule that is a query exclude each other")}
  END IF;
  SELECT max(a.id) INTO not_older FROM unnest(NEW.after) AS a(id) WHERE a.id >= NEW.id;
  IF not_older IS NOT NULL THEN
    RAISE EXCEPTION 'after contains %, which is not below its own id %: a task can only wait for older ones', not_older, NEW.id
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  must_wait := NEW.after IS NOT NULL AND NEW.state::text = 'PLAN' AND NEW.owner IS NULL;
  IF TG_OP = 'UPDATE' AND OLD.wait >= 0 AND NEW.after IS NULL THEN
    NEW.plan := greatest(coalesce(NEW.due, statement_timestamp()), statement_timestamp());
    NEW.due := NULL;
    NEW.wait := NULL;
  ELSIF TG_OP = 'UPDATE' AND must_wait AND OLD.wait >= 0 AND OLD.state::text = 'PLAN' THEN
    IF NEW.plan IS DISTINCT FROM OLD.plan THEN
      NEW.due := NEW.plan;
      NEW.plan := 'infinity';
    ELSE
      NEW.due := OLD.due;
    END IF;
    IF (NEW.after, NEW.upon) IS DISTINCT FROM (OLD.after, OLD.upon) THEN
      NEW.wait := cardinality(NEW.after);
    END IF;
  ELSIF must_wait THEN
    IF TG_OP = 'UPDATE' THEN
      must_wait := OLD.state::text <> 'PLAN' OR (NEW.after, NEW.upon) IS DISTINCT FROM (OLD.after, OLD.upon);
    END IF;
    IF must_wait THEN
      -- A row that is loaded from a dump has been put off already.
      IF TG_OP <> 'INSERT' OR NEW.wait IS NULL OR NEW.plan <> 'infinity' THEN
        NEW.due := NEW.plan;
        NEW.plan := 'infinity';
      END IF;
      NEW.wait := cardinality(NEW.after);
    END IF;
  END IF;
  -- The trigger that maintains ready may have run before this one.
  IF NEW.state::text = 'PLAN' AND NEW.owner IS NULL THEN
    NEW.ready := NEW.plan <= clock_timestamp();
  END IF;`,
};

export const planPartitionsProblem = "the table is partitioned by plan";

export const refusedOrderCheck: OptionCheck = {
  watched: columns,
  isUsed: isAnySet(columns),
  body: `
  IF num_nonnulls(NEW.after, NEW.upon) > 0 THEN
    RAISE EXCEPTION 'after cannot be used: ${planPartitionsProblem}' USING ERRCODE = 'feature_not_supported',
      HINT = 'A task that waits for others is planned for infinity, which can belong to another partition.';
  END IF;`,
};

/** A trigger plans a waiting task for infinity. The server refuses one that moves a row to another partition. */
export async function isPartitionedByPlan(client: Client, { qualified }: TaskTable): Promise<boolean> {
  const { rows } = await client.query<{ found: boolean }>(
    String.raw`SELECT EXISTS (
       SELECT FROM pg_catalog.pg_partitioned_table AS p
       WHERE (p.partrelid = $1::pg_catalog.regclass
           OR p.partrelid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree($1::pg_catalog.regclass) AS t))
         AND pg_catalog.pg_get_partkeydef(p.partrelid) ~ '\yplan\y') AS found`,
    [qualified],
  );
  return rows[0]?.found === true;
}
