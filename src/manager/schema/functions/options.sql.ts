import { literal } from "../../../shared/postgres/quoting.js";
import { columnNames, columnsWith, type ColumnName } from "../../../shared/taskColumns.js";
import type { TaskTable } from "../taskTable.js";

export const settings = "SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on";

/** Variables that `readOptions` needs. */
export const optionVariables = `
  unknown text;
  names text;
  types text;`;

/** The columns that an option can set: those that producers set, and those that users have added. */
export const optionColumns = (except: readonly ColumnName[]): readonly ColumnName[] =>
  columnsWith({ by: "producer" }).filter((name) => !except.includes(name));

/**
 * PL/pgSQL statements that check the keys of the JSON object in the variable `options`, and that set `names` to the
 * quoted names of the given columns, each after a comma, and `types` to their definitions for `jsonb_to_record`. Null
 * stands for the column's default. Text that is too long for a "char" column would be truncated without an error.
 */
export function readOptions(table: TaskTable, allowed: readonly ColumnName[]): string {
  const refused = columnNames.filter((name) => !allowed.includes(name));
  return `
  SELECT string_agg(o.name, ', ' ORDER BY o.name) FILTER (WHERE a.attname IS NULL),
    string_agg(concat(', ', quote_ident(a.attname)), '' ORDER BY a.attnum) FILTER (WHERE o.value <> 'null'),
    string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum) FILTER (WHERE a.attnum IS NOT NULL)
  INTO unknown, names, types
  FROM jsonb_each(options) AS o(name, value) LEFT JOIN pg_attribute AS a ON a.attrelid = ${literal(table.qualified)}::regclass
    AND a.attname = o.name AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL (${nameArray(refused)});
  IF unknown IS NOT NULL THEN
    RAISE EXCEPTION 'unknown option: %', unknown USING ERRCODE = 'invalid_parameter_value',
      HINT = ${literal(`Options are ${allowed.join(", ")}, and columns of your own.`)};
  ELSIF greatest(octet_length(options ->> 'delimiter'), octet_length(options ->> 'escape'), octet_length(options ->> 'quote')) > 1 THEN
    RAISE EXCEPTION 'delimiter, escape and quote have one character' USING ERRCODE = 'invalid_parameter_value';
  END IF;`;
}

export const nameArray = (names: readonly string[]): string => `ARRAY[${names.map(literal).join(", ")}]::name[]`;

/** PL/pgSQL for functions of a table that has no keys. */
export const refuseKeys = ({ hasKeys }: TaskTable, condition = "true"): string =>
  hasKeys
    ? ""
    : `
  IF ${condition} THEN
    RAISE EXCEPTION 'this table has no keys' USING ERRCODE = 'feature_not_supported';
  END IF;`;
