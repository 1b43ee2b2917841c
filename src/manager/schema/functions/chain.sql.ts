import { literal } from "../../../shared/postgres/quoting.js";
import type { TaskTable } from "../taskTable.js";
import { optionColumns, optionVariables, readOptions, refuseKeys, settings } from "./options.sql.js";

const purpose = "chains";
const comment = "pg-task chain ";

const parameters = (first: string): string =>
  `${first}, fail text DEFAULT NULL, key text DEFAULT NULL, "group" text DEFAULT NULL`;

export const chain = (table: TaskTable) => ({
  purpose,
  comment,
  signature: `${table.qualifiedChain}(jsonb, text, text, text)`,
  create: createStatement(table),
});

/** The function with an array of inputs. */
export const chainOfInputs = (table: TaskTable) => ({
  purpose,
  comment,
  signature: `${table.qualifiedChain}(text[], text, text, text)`,
  create: `CREATE OR REPLACE FUNCTION ${table.qualifiedChain}(${parameters("inputs text[]")})
RETURNS SETOF bigint LANGUAGE sql ${settings} AS ${literal(`
  SELECT ${table.qualifiedChain}(${toSteps("inputs")}, fail, key, "group") `)}`,
});

/** The server chooses this one for a literal without a type, and for a parameter of a client that names no type. */
export const chainOfText = (table: TaskTable) => ({
  purpose,
  comment,
  signature: `${table.qualifiedChain}(text, text, text, text)`,
  create: `CREATE OR REPLACE FUNCTION ${table.qualifiedChain}(${parameters("inputs text")})
RETURNS SETOF bigint LANGUAGE sql ${settings} AS ${literal(`
  SELECT ${table.qualifiedChain}(CASE WHEN ${isJson} THEN inputs::jsonb ELSE ${toSteps("inputs::text[]")} END, fail, key, "group") `)}`,
});

const toSteps = (inputs: string): string => `to_jsonb(ARRAY(SELECT unnest(${inputs})))`;

/** An array of PostgreSQL begins with a brace, or with its bounds. */
const isJson = String.raw`inputs ~ '^\s*\[\s*[^-+0-9\s]'`;

/** A step waits for the one before, and runs once. */
const stepOptions = optionColumns([
  "parent",
  "after",
  "repeat",
  "drift",
  "rule",
  "zone",
  "catchup",
  "overlap",
  "jitter",
]);

/**
 * The `within` of the first step is that of all, but not that of the clean-up. Its `alone` is that of all.
 *
 * The function TABLE_chain plans steps of which each waits for the one before. They have the keys `KEY 1`, `KEY 2` and
 * so on. If one of them still waits, the unique index of keys refuses it, and the whole chain is left out. INSERT names
 * only columns with a value, because the others get their defaults.
 */
function createStatement(table: TaskTable): string {
  const name = literal(table.chainFunction);
  return `CREATE OR REPLACE FUNCTION ${table.qualifiedChain}(${parameters("steps jsonb")})
RETURNS SETOF bigint LANGUAGE plpgsql ${settings} AS ${literal(`
DECLARE
  count CONSTANT integer := CASE WHEN jsonb_typeof(steps) = 'array' THEN jsonb_array_length(steps) ELSE 0 END;
  cleans_up boolean;
  options jsonb;${optionVariables}
  ids bigint[] := '{}';
  id bigint;
  violated text;
BEGIN
  IF jsonb_typeof(steps) NOT IN ('array', 'null') THEN
    RAISE EXCEPTION '% expects an array of steps, not %', ${name}, jsonb_typeof(steps) USING ERRCODE = 'invalid_parameter_value';
  ELSIF count = 0 THEN
    RAISE EXCEPTION '% expects at least one input', ${name} USING ERRCODE = 'invalid_parameter_value';
  END IF;${refuseKeys(table, "key IS NOT NULL")}
  BEGIN
    FOR n IN 1 .. count + CASE WHEN fail IS NULL THEN 0 ELSE 1 END LOOP
      cleans_up := n > count;
      options := CASE WHEN cleans_up THEN jsonb_build_object('input', fail, 'upon', 'fail') ELSE steps -> (n - 1) END;
      IF jsonb_typeof(options) = 'string' THEN
        options := jsonb_build_object('input', options);
      ELSIF jsonb_typeof(options) NOT IN ('object', 'null') THEN
        RAISE EXCEPTION 'step % of % is neither a string nor an object', n, ${name} USING ERRCODE = 'invalid_parameter_value';
      END IF;
      IF (options ->> 'input') IS NULL THEN
        RAISE EXCEPTION 'input % of % is null', n, ${name} USING ERRCODE = 'invalid_parameter_value';
      END IF;
      options := jsonb_build_object('group', "group", 'key', CASE WHEN key IS NOT NULL THEN concat(key, ' ', n) END,
        'within', CASE WHEN NOT cleans_up THEN steps -> 0 -> 'within' END, 'alone', steps -> 0 -> 'alone') || options;${readOptions(table, stepOptions)}
      EXECUTE concat(${literal(`INSERT INTO ${table.qualified} (after`)}, names, ') SELECT $2', names,
        ' FROM jsonb_to_record($1) AS o(', types, ') RETURNING id')
        INTO id USING options, CASE WHEN cleans_up THEN ids WHEN n > 1 THEN ids[n - 1 : n - 1] END;
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
