-- The columns for schedules, retries, order, keys, arguments, gaps and roles (src/manager/schema/features.ts). All
-- of them allow null and have no checks, so that they cost little for tasks that do not use them, and existing rows
-- are not rewritten. Their values are checked by a trigger that fires only for rows that use them.

-- == Columns ==

-- If the table already has a column of one of these names, the column is left as it is, whatever its type
-- (src/manager/schema/ownColumns.ts). The defaults are set after the columns have been added, so that they apply to
-- new rows only. When a user has renamed or dropped such a column, this statement is run again.
DO $function$
DECLARE
  task pg_catalog.regclass := :'qualified';
  added record;
  changes text := '';
  comments text := '';
BEGIN
  FOR added IN SELECT * FROM (VALUES
    ('rule', 'text', NULL, 'When it runs again: cron, RRULE or SELECT'),
    ('zone', 'text', NULL, 'Time zone of the rule'),
    ('catchup', 'boolean', NULL, 'Whether each missed time is made up for; null is false'),
    ('overlap', 'boolean', NULL, 'Whether the next run is planned when this one starts, not when it ends; null is false'),
    ('retry', 'integer', NULL, 'How often it is tried again after an error; null is 0'),
    ('backoff', 'interval', NULL, 'Pause before it is tried again, doubled after each try'),
    ('sqlstate', 'text[]', NULL, 'Errors after which it is tried again'),
    ('attempt', 'integer', NULL, 'How many tries have failed; null is 0'),
    ('errors', 'jsonb', NULL, 'Errors of tries that led to another one, the oldest first'),
    ('after', 'bigint[]', NULL, 'Older tasks for whose end it waits'),
    ('upon', 'text', NULL, 'How these have to end: done, fail or end; null is done'),
    ('key', 'text', NULL, 'At most one task with the same key waits, and at most one runs'),
    ('args', 'jsonb', NULL, 'Values for its input'),
    ('gap', 'interval', NULL, 'Shortest time between two starts in its group; null is 0'),
    ('role', 'name', NULL, 'Role under which it runs'),
    ('created', 'timestamp with time zone', 'statement_timestamp()', 'When it was inserted'),
    ('due', 'timestamp with time zone', NULL, 'For pg-task''s own use: the time from which its schedule goes on, if its plan was moved'),
    ('wait', 'integer', NULL, 'For pg-task''s own use: negative if the query in rule still has to compute the plan'),
    ('plain', 'boolean', 'true', 'For pg-task''s own use: false if other rows depend on its end; null is true')
  ) AS a(name, type, value, comment)
  WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS c
    WHERE c.attrelid = task AND c.attname = a.name AND NOT c.attisdropped)
  LOOP
    changes := pg_catalog.concat(changes, pg_catalog.format(', ADD COLUMN %I %s', added.name, added.type));
    IF added.value IS NOT NULL THEN
      changes := pg_catalog.concat(changes, pg_catalog.format(', ALTER COLUMN %I SET DEFAULT %s', added.name, added.value));
    END IF;
    comments := pg_catalog.concat(comments, pg_catalog.format('COMMENT ON COLUMN %s.%I IS %L;', task, added.name, added.comment));
  END LOOP;
  IF changes <> '' THEN
    EXECUTE pg_catalog.format('ALTER TABLE %s %s', task, pg_catalog.substr(changes, 3));
    EXECUTE comments;
  END IF;
END $function$;

-- == Checks ==

-- Merges the nine checks of the first migration into one, which refuses the same rows at half the cost. For each
-- statement that inserts, the server has to read and prepare the expression of each check. Adopted tables
-- (docs/adoption.md) keep the checks that they have. The positions of the columns tell whether the first migration
-- created the table. Existing rows have passed the nine checks, so they are not scanned again.
DO $function$
DECLARE
  task pg_catalog.regclass := :'qualified';
  drops text;
  count bigint;
BEGIN
  SELECT pg_catalog.count(*), pg_catalog.string_agg(pg_catalog.format('DROP CONSTRAINT %I', c.conname), ', ')
  INTO count, drops
  FROM (VALUES
    (7, pg_catalog.format('(active > %L::interval)', interval '0')),
    (8, pg_catalog.format('(live >= %L::interval)', interval '0')),
    (9, pg_catalog.format('(repeat >= %L::interval)', interval '0')),
    (10, pg_catalog.format('(timeout >= %L::interval)', interval '0')),
    (11, '(count >= 0)'),
    (24, pg_catalog.format('(delimiter <= %L::%I)', E'\x7f', 'char')),
    (25, pg_catalog.format('(escape <= %L::%I)', E'\x7f', 'char')),
    (26, pg_catalog.format('(quote <= %L::%I)', E'\x7f', 'char')),
    (35, pg_catalog.format('(keep >= %L::interval)', interval '0'))
  ) AS w(position, expression)
  JOIN pg_catalog.pg_constraint AS c ON c.conrelid = task AND c.contype = 'c' AND c.conkey = ARRAY[w.position::smallint]
    AND pg_catalog.pg_get_expr(c.conbin, c.conrelid) = w.expression;
  IF count = 9 THEN
    EXECUTE pg_catalog.format('ALTER TABLE %s %s, ADD CHECK (active > interval %L AND least(live, repeat, timeout, keep) >= interval %L '
      'AND count >= 0 AND greatest(delimiter, escape, quote) <= %L) %s',
      task, drops, '0', '0', E'\x7f', CASE WHEN pg_catalog.pg_relation_size(task) > 0 THEN 'NOT VALID' END);
  END IF;
END $function$;

-- == Triggers ==

-- Does the same as in the first migration, but costs producers less. Each PERFORM starts and ends the executor, while
-- PL/pgSQL evaluates the condition of an IF without it. The WHEN condition of a trigger has to be prepared for each
-- statement, while the conditions in a function are prepared once per session. Therefore this function now contains
-- what was the condition of its trigger. It also works under a trigger that still has the condition.
CREATE OR REPLACE FUNCTION :"schema".:"wakeUp"() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
  root pg_catalog.oid := coalesce(pg_catalog.pg_partition_root(TG_RELID)::pg_catalog.oid, TG_RELID);
  lock pg_catalog.int4;
  own pg_catalog.bool := true;
BEGIN
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT'::pg_catalog.text
    AND pg_catalog.current_setting('pgtask.manager', true) OPERATOR(pg_catalog.=) 'on'::pg_catalog.text
    AND root OPERATOR(pg_catalog.=) :'qualified'::pg_catalog.regclass::pg_catalog.oid THEN
    RETURN NULL;
  END IF;
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'ROW'::pg_catalog.text OR TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE'::pg_catalog.text THEN
    IF TG_LEVEL OPERATOR(pg_catalog.=) 'ROW'::pg_catalog.text THEN
      own := OLD.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK']::pg_catalog.text[])
        OR OLD.pid OPERATOR(pg_catalog.<) 0;
    END IF;
    IF own AND root OPERATOR(pg_catalog.=) :'qualified'::pg_catalog.regclass::pg_catalog.oid THEN
      PERFORM pg_catalog.set_config('pgtask.deleted',
        pg_catalog.concat(root, ' ', pg_catalog.current_setting('pg_task.id', true)), true);
    END IF;
    IF TG_LEVEL OPERATOR(pg_catalog.=) 'ROW'::pg_catalog.text THEN
      RETURN NULL;
    END IF;
  END IF;
  lock := root::pg_catalog.int8::pg_catalog.bit(32)::pg_catalog.int4;
  IF pg_catalog.pg_try_advisory_lock_shared(:'busyClass', lock)
    AND pg_catalog.pg_advisory_unlock_shared(:'busyClass', lock)
    AND pg_catalog.pg_notify(pg_catalog.concat('pg_task_', root), '') IS NULL THEN
    RETURN NULL;
  END IF;
  RETURN NULL;
END $function$;

-- Replaces two triggers: the one that calls this function by one without a condition, and the one that sets `ready` by
-- one whose condition compares `state` as an enum value instead of as text. The comment of either trigger may be a
-- record of pg-task (src/manager/schema/planDefault.ts), so it is kept.
DO $function$
DECLARE
  task pg_catalog.regclass := :'qualified';
  replaced record;
BEGIN
  FOR replaced IN
    SELECT t.tgname AS name, pg_catalog.obj_description(t.oid, 'pg_trigger') AS comment
    FROM pg_catalog.pg_trigger AS t WHERE t.tgrelid = task
      AND (t.tgname = :'wakeUp' OR t.tgname = :'readyInsertTrigger'
        AND EXISTS (SELECT FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS y ON y.oid = a.atttypid
          WHERE a.attrelid = task AND a.attname = 'state' AND y.typtype = 'e')
        AND pg_catalog.strpos(pg_catalog.pg_get_triggerdef(t.oid), '(new.state)::text <> ''PLAN''::text') > 0)
  LOOP
    EXECUTE pg_catalog.format('DROP TRIGGER %I ON %s', replaced.name, task);
    IF replaced.name = :'wakeUp' THEN
      CREATE TRIGGER :"wakeUp" AFTER INSERT OR DELETE OR TRUNCATE OR UPDATE OF plan, state ON :"schema".:"table" FOR EACH STATEMENT
        EXECUTE FUNCTION :"schema".:"wakeUp"();
    ELSE
      CREATE TRIGGER :"readyInsertTrigger" BEFORE INSERT ON :"schema".:"table" FOR EACH ROW
        WHEN (NEW.plan > statement_timestamp() OR NEW.state OPERATOR(pg_catalog.<>) 'PLAN' OR NEW.owner IS NOT NULL OR NEW.ready IS NOT TRUE)
        EXECUTE FUNCTION :"schema".:"readyFunction"();
    END IF;
    EXECUTE pg_catalog.format('COMMENT ON TRIGGER %I ON %s IS %L', replaced.name, task, replaced.comment);
  END LOOP;
END $function$;
