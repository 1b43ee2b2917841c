import { literal } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "./taskTable.js";

export const chain = (table: TaskTable) => ({
  purpose: "chains",
  comment: "pg-task chain ",
  signature: `${table.qualifiedChain}(text[], text, text, text)`,
  create: createStatement(table),
});

/**
 * The function TABLE_chain plans steps of which each waits for the one before. They have the keys `KEY 1`, `KEY 2` and
 * so on. If one of them still waits, the unique index of keys refuses it, and the whole chain is left out. INSERT names
 * only columns with a value, because the others get their defaults.
 */
function createStatement(table: TaskTable): string {
  const name = literal(table.chainFunction);
  return `CREATE OR REPLACE FUNCTION ${table.qualifiedChain}(
  inputs text[], fail text DEFAULT NULL, key text DEFAULT NULL, "group" text DEFAULT NULL
) RETURNS SETOF bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS ${literal(`
DECLARE
  steps CONSTANT text[] := ARRAY(SELECT unnest(inputs));
  count CONSTANT integer := cardinality(steps) + CASE WHEN fail IS NULL THEN 0 ELSE 1 END;
  statement CONSTANT text := concat(${literal(`INSERT INTO ${table.qualified} (input, after, upon`)},
    CASE WHEN "group" IS NOT NULL THEN ', "group"' END, CASE WHEN key IS NOT NULL THEN ', key' END, ') VALUES ($1, $2, $3',
    CASE WHEN "group" IS NOT NULL THEN ', $4' END, CASE WHEN key IS NOT NULL THEN ', $5' END, ') RETURNING id');
  cleans_up boolean;
  ids bigint[] := '{}';
  id bigint;
  violated text;
BEGIN
  IF cardinality(steps) = 0 THEN
    RAISE EXCEPTION '% expects at least one input', ${name} USING ERRCODE = 'invalid_parameter_value';
  ELSIF array_position(steps, NULL) IS NOT NULL THEN
    RAISE EXCEPTION 'input % of % is null', array_position(steps, NULL), ${name} USING ERRCODE = 'invalid_parameter_value';
  END IF;${noKeys(table)}
  BEGIN
    FOR n IN 1 .. count LOOP
      cleans_up := n > cardinality(steps);
      EXECUTE statement INTO id USING CASE WHEN cleans_up THEN fail ELSE steps[n] END,
        CASE WHEN cleans_up THEN ids WHEN n > 1 THEN ids[n - 1 : n - 1] END,
        CASE WHEN cleans_up THEN 'fail' END, "group", concat(key, ' ', n);
      ids := array_append(ids, id);
    END LOOP;
  EXCEPTION WHEN unique_violation THEN
    GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME;
    IF key IS NULL OR violated <> ${literal(table.keyIndex)} THEN
      RAISE;
    END IF;
    RETURN;
  END;
  RETURN QUERY SELECT unnest(ids);
END `)}`;
}

const noKeys = ({ hasKeys }: TaskTable): string =>
  hasKeys
    ? ""
    : `
  IF key IS NOT NULL THEN
    RAISE EXCEPTION 'this table has no keys' USING ERRCODE = 'feature_not_supported';
  END IF;`;
