import { literal } from "../../../shared/postgres/quoting.js";
import { keyColumns } from "../keyIndex.js";
import type { TaskTable } from "../taskTable.js";

/** How many changed rows a task gets at most. */
const maxRows = 1000;

/** Largest size of a task's changed rows as text, in bytes. It leaves room for the rest of `args`. */
const maxRowBytes = 1_000_000;

export const asyncTrigger = (table: TaskTable) => ({
  purpose: "asynchronous triggers",
  comment: "pg-task async trigger ",
  signature: `${table.qualifiedAsync}()`,
  create: createStatement(table),
});

/**
 * The trigger function TABLE_async plans a task when a row of another table is changed. Its arguments are the input,
 * and pairs of a column and its value. A value that begins with `=` is an expression over `$1`, the args:
 *
 *     EXECUTE FUNCTION task_async('SELECT f($1)', 'group', 'billing', 'plan', '=now() + interval ''5 s''')
 *
 * The args are an object that describes the change: op, schema, table, new and old. A row trigger plans a task for each
 * row. A statement trigger with transition tables plans one for each `maxRows` changed rows, with `new` and `old` as
 * arrays of rows. With a key, it plans a single task. Both tables have the rows in the order of their changes, so rows
 * at the same position belong together.
 */
function createStatement(table: TaskTable): string {
  const name = literal(table.asyncFunction);
  return `CREATE OR REPLACE FUNCTION ${table.qualifiedAsync}() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS ${literal(`
DECLARE
  change jsonb;
  names text;
  given text;
  conflict text;
  new_table name;
  old_table name;
  new_cursor refcursor;
  old_cursor refcursor;
  new_row jsonb;
  old_row jsonb;
  new_rows jsonb[];
  old_rows jsonb[];
  count integer := 0;
  bytes bigint := 0;
  added integer;
BEGIN
  IF TG_WHEN <> 'AFTER' THEN
    RAISE EXCEPTION '% needs an AFTER trigger, trigger "%" is %', ${name}, TG_NAME, TG_WHEN
      USING ERRCODE = 'trigger_protocol_violated';
  ELSIF TG_NARGS % 2 = 0 THEN
    RAISE EXCEPTION '% expects an input, and a value after each column, trigger "%" has % arguments', ${name}, TG_NAME, TG_NARGS
      USING ERRCODE = 'trigger_protocol_violated';
  END IF;
  IF TG_NARGS > 1 AND NOT (TG_NARGS = 3 AND TG_ARGV[1] = 'group' AND NOT starts_with(TG_ARGV[2], '=')) THEN
    FOR n IN 1 .. TG_NARGS - 1 BY 2 LOOP
      names := concat(names, ', ', quote_ident(TG_ARGV[n]));
      given := concat(given, ', ', CASE WHEN starts_with(TG_ARGV[n + 1], '=')
        THEN concat('(', substr(TG_ARGV[n + 1], 2), E'\\n)') ELSE quote_literal(TG_ARGV[n + 1]) END);${replacement(table)}
    END LOOP;
  END IF;
  IF TG_LEVEL = 'ROW' THEN
    change := ${changeOf("to_jsonb(NEW)", "to_jsonb(OLD)")};${insertion(table)}
    RETURN NULL;
  END IF;
  SELECT tgnewtable, tgoldtable INTO new_table, old_table FROM pg_trigger WHERE tgrelid = TG_RELID AND tgname = TG_NAME;
  IF new_table IS NULL AND old_table IS NULL THEN
    change := ${changeOf("NULL", "NULL")};${insertion(table)}
    RETURN NULL;
  END IF;
  IF new_table IS NOT NULL THEN
    OPEN new_cursor NO SCROLL FOR EXECUTE concat('SELECT to_jsonb("a row") FROM ', quote_ident(new_table), ' AS "a row"');
  END IF;
  IF old_table IS NOT NULL THEN
    OPEN old_cursor NO SCROLL FOR EXECUTE concat('SELECT to_jsonb("a row") FROM ', quote_ident(old_table), ' AS "a row"');
  END IF;
  LOOP
    IF new_table IS NOT NULL THEN
      FETCH new_cursor INTO new_row;
    END IF;
    IF old_table IS NOT NULL THEN
      FETCH old_cursor INTO old_row;
    END IF;
    added := octet_length(concat(new_row, old_row));
    -- A second task with the same key would replace the rows of the first one.
    IF conflict IS NOT NULL AND bytes + added > ${maxRowBytes} THEN
      RAISE EXCEPTION 'the changed rows are larger than 1 MB, and a task with a key takes all rows of a statement'
        USING ERRCODE = 'program_limit_exceeded', HINT = 'Change fewer rows at once, or plan the task without a key.';
    END IF;
    IF count > 0 AND (added = 0 OR conflict IS NULL AND (count = ${maxRows} OR bytes + added > ${maxRowBytes})) THEN
      change := ${changeOf("to_jsonb(new_rows)", "to_jsonb(old_rows)")};${insertion(table)}
      new_rows := NULL;
      old_rows := NULL;
      count := 0;
      bytes := 0;
    END IF;
    EXIT WHEN added = 0;
    IF new_row IS NOT NULL THEN
      new_rows := array_append(new_rows, new_row);
    END IF;
    IF old_row IS NOT NULL THEN
      old_rows := array_append(old_rows, old_row);
    END IF;
    count := count + 1;
    bytes := bytes + added;
  END LOOP;
  RETURN NULL;
END `)}`;
}

const changeOf = (newRows: string, oldRows: string): string =>
  `jsonb_build_object('op', TG_OP, 'schema', TG_TABLE_SCHEMA, 'table', TG_TABLE_NAME, 'new', ${newRows}, 'old', ${oldRows})`;

/** A column that is left out gets its default, so each set of columns needs a statement of its own. */
const insertion = ({ qualified }: TaskTable): string => `
    IF names IS NOT NULL THEN
      EXECUTE concat(${literal(`INSERT INTO ${qualified} (input, args`)}, names, ') VALUES ($2, $1', given, ')', conflict)
        USING change, TG_ARGV[0];
    ELSIF TG_NARGS = 3 THEN
      INSERT INTO ${qualified} (input, args, "group") VALUES (TG_ARGV[0], change, TG_ARGV[2]);
    ELSE
      INSERT INTO ${qualified} (input, args) VALUES (TG_ARGV[0], change);
    END IF;`;

/** Lets a task whose key already waits replace the args of the waiting one, if the table has the index of keys. */
const replacement = (table: TaskTable): string =>
  table.hasKeys
    ? `
      IF TG_ARGV[n] = 'key' AND EXISTS (
        SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND i.indkey[i.indnkeyatts - 1] = a.attnum
        WHERE i.indrelid = ${literal(table.qualified)}::regclass AND i.indnkeyatts = ${table.usersOwner === null ? 1 : 2} AND a.attname = 'key' AND i.indisunique AND i.indisvalid
          AND pg_get_expr(i.indpred, i.indrelid) = '((key IS NOT NULL) AND (ready IS NOT NULL))') THEN
        conflict := ' ON CONFLICT (${keyColumns(table)}) WHERE key IS NOT NULL AND ready IS NOT NULL DO UPDATE SET args = excluded.args';
      END IF;`
    : "";
