-- Whoever else sets the state of a task that runs ends that run; what the task itself sets stays.

-- As before, and it remembers in the row that the task itself has set its state while it runs: its pid is
-- negative then. So a savepoint that is rolled back takes that along, and a commit in the middle of the
-- run does not. A state that somebody else has set is not the task's to change any more.
CREATE OR REPLACE FUNCTION :"schema".:"readyFunction"() RETURNS trigger LANGUAGE plpgsql AS $function$ BEGIN
  IF NEW.state::pg_catalog.text OPERATOR(pg_catalog.=) 'PLAN'::pg_catalog.text AND NEW.owner IS NULL THEN
    NEW.ready := NEW.plan OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp();
  ELSE
    NEW.ready := NULL;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.<>) 'UPDATE'::pg_catalog.text OR NEW.owner IS NULL THEN
    RETURN NEW;
  END IF;
  IF NEW.state::pg_catalog.text OPERATOR(pg_catalog.=) OLD.state::pg_catalog.text THEN
    RETURN NEW;
  END IF;
  IF NEW.id::pg_catalog.text OPERATOR(pg_catalog.=) pg_catalog.current_setting('pg_task.id', true)
    AND coalesce(pg_catalog.abs(OLD.pid) OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid(), true) THEN
    IF OLD.state::pg_catalog.text OPERATOR(pg_catalog.<>) ALL (ARRAY['TAKE', 'WORK']::pg_catalog.text[])
      AND coalesce(OLD.pid OPERATOR(pg_catalog.>=) 0, true) THEN
      RAISE EXCEPTION 'task was set to % while it ran', OLD.state USING ERRCODE = 'PGT01';
    END IF;
    NEW.pid := pg_catalog.pg_backend_pid();
    IF NEW.state::pg_catalog.text OPERATOR(pg_catalog.<>) ALL (ARRAY['TAKE', 'WORK']::pg_catalog.text[]) THEN
      NEW.pid := OPERATOR(pg_catalog.-) NEW.pid;
    END IF;
  ELSE
    NEW.pid := pg_catalog.abs(NEW.pid);
  END IF;
  RETURN NEW;
END $function$;

-- As before, but a row that somebody else has set to another state is not the task's own to delete.
CREATE OR REPLACE FUNCTION :"schema".:"wakeUp"() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
  root pg_catalog.oid := coalesce(pg_catalog.pg_partition_root(TG_RELID)::pg_catalog.oid, TG_RELID);
  lock pg_catalog.int4 := root::pg_catalog.int8::pg_catalog.bit(32)::pg_catalog.int4;
  task pg_catalog.text := pg_catalog.current_setting('pg_task.id', true);
  own pg_catalog.bool := TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE'::pg_catalog.text;
BEGIN
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'ROW'::pg_catalog.text THEN
    own := OLD.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK']::pg_catalog.text[])
      OR OLD.pid OPERATOR(pg_catalog.<) 0;
  END IF;
  IF own AND root OPERATOR(pg_catalog.=) :'qualified'::pg_catalog.regclass::pg_catalog.oid THEN
    PERFORM pg_catalog.set_config('pgtask.deleted', pg_catalog.concat(root, ' ', task), true);
  END IF;
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'ROW'::pg_catalog.text THEN
    RETURN NULL;
  END IF;
  IF pg_catalog.pg_try_advisory_lock_shared(:'busyClass', lock) THEN
    PERFORM pg_catalog.pg_advisory_unlock_shared(:'busyClass', lock);
    PERFORM pg_catalog.pg_notify(pg_catalog.concat('pg_task_', root), '');
  END IF;
  RETURN NULL;
END $function$;

-- As before, but for any state that somebody else has set. What is not qualified is a parameter or a variable
-- here, also where the table has a column of that name.
CREATE OR REPLACE FUNCTION :"schema".:"finish"(task bigint, taken bigint, holder text, ledger integer)
RETURNS boolean LANGUAGE plpgsql AS $function$
#variable_conflict use_variable
DECLARE
  me pg_catalog.text;
  found_state pg_catalog.text;
  found_owner pg_catalog.text;
  found_pid pg_catalog.int8;
  own pg_catalog.bool;
BEGIN
  UNLISTEN *;
  IF pg_catalog.txid_current_if_assigned() IS NULL THEN
    RETURN NULL;
  END IF;
  IF ledger OPERATOR(pg_catalog.=) 1 THEN
    INSERT INTO :"schema".:"ledger1" SELECT task, taken, true, pg_catalog.now(), pg_catalog.clock_timestamp() FROM :"schema".:"table" AS t
    WHERE t.id OPERATOR(pg_catalog.=) task AND t.owner OPERATOR(pg_catalog.=) holder
      AND t.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK']::pg_catalog.text[]);
  ELSE
    INSERT INTO :"schema".:"ledger2" SELECT task, taken, true, pg_catalog.now(), pg_catalog.clock_timestamp() FROM :"schema".:"table" AS t
    WHERE t.id OPERATOR(pg_catalog.=) task AND t.owner OPERATOR(pg_catalog.=) holder
      AND t.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK']::pg_catalog.text[]);
  END IF;
  IF FOUND THEN
    -- The commit waits for no flush: that of the row's DONE comes later, and covers it.
    PERFORM pg_catalog.set_config('synchronous_commit', 'off', true);
    RETURN true;
  END IF;
  -- Its row says something else by now: was that the task itself?
  me := pg_catalog.concat(:'qualified'::pg_catalog.regclass::pg_catalog.oid, ' ', task);
  SELECT t.state::pg_catalog.text, t.owner, t.pid
  INTO found_state, found_owner, found_pid FROM :"schema".:"table" AS t WHERE t.id OPERATOR(pg_catalog.=) task;
  IF NOT FOUND THEN
    own := pg_catalog.current_setting('pgtask.deleted', true) OPERATOR(pg_catalog.=) me;
  ELSE
    own := found_owner OPERATOR(pg_catalog.=) holder AND found_pid OPERATOR(pg_catalog.<) 0;
    IF found_owner OPERATOR(pg_catalog.=) holder AND own IS NOT TRUE AND found_state OPERATOR(pg_catalog.<>) 'STOP'::pg_catalog.text THEN
      RAISE EXCEPTION 'task was set to % while it ran', found_state USING ERRCODE = 'PGT01';
    END IF;
  END IF;
  IF own IS NOT TRUE THEN
    RAISE EXCEPTION 'task was stopped or deleted while it ran' USING ERRCODE = 'PGT01';
  END IF;
  IF ledger OPERATOR(pg_catalog.=) 1 THEN
    INSERT INTO :"schema".:"ledger1" VALUES (task, taken, false, pg_catalog.now(), pg_catalog.clock_timestamp());
  ELSE
    INSERT INTO :"schema".:"ledger2" VALUES (task, taken, false, pg_catalog.now(), pg_catalog.clock_timestamp());
  END IF;
  RETURN false;
END $function$;

-- The plan that the setting pg_task.plan of a session, role or database means: a time, an interval from
-- now, or one of the clocks, to which an interval may be added. It is read, never run: it would run as
-- whoever inserts, which may be a function with other rights than those of who has made the setting.
CREATE OR REPLACE FUNCTION :"schema".:"planned"(setting text) RETURNS timestamptz LANGUAGE plpgsql AS $function$
DECLARE
  parts pg_catalog.text[] := pg_catalog.regexp_match(setting,
    '^ *(?:pg_catalog[.])?(?:(statement_timestamp|now|transaction_timestamp|clock_timestamp) *[(] *[)]|(current_timestamp)) *'
    '(?:([+-]) *(?:interval *)?''([^'']*)'' *(?::: *interval)?)? *$', 'i');
  clock pg_catalog.timestamptz := pg_catalog.statement_timestamp();
BEGIN
  IF parts IS NOT NULL THEN
    CASE pg_catalog.lower(coalesce(parts[1], parts[2]))
      WHEN 'clock_timestamp' THEN clock := pg_catalog.clock_timestamp();
      WHEN 'statement_timestamp' THEN NULL;
      ELSE clock := pg_catalog.now();
    END CASE;
    IF parts[4] IS NULL THEN
      RETURN clock;
    ELSIF parts[3] OPERATOR(pg_catalog.=) '-'::pg_catalog.text THEN
      RETURN clock OPERATOR(pg_catalog.-) parts[4]::pg_catalog.interval;
    END IF;
    RETURN clock OPERATOR(pg_catalog.+) parts[4]::pg_catalog.interval;
  END IF;
  BEGIN
    RETURN setting::pg_catalog.timestamptz;
  EXCEPTION WHEN data_exception THEN
    NULL;
  END;
  BEGIN
    RETURN clock OPERATOR(pg_catalog.+) setting::pg_catalog.interval;
  EXCEPTION WHEN data_exception THEN
    RAISE EXCEPTION 'pg_task.plan is no time, interval or clock plus interval: "%"', setting
      USING ERRCODE = 'invalid_datetime_format', HINT = 'Other expressions are for the configuration file.';
  END;
END $function$;

COMMENT ON FUNCTION :"schema".:"planned"(text) IS 'pg-task planned';

-- Whoever inserts executes this function, and whoever asks a view that view's, with their own rights. A
-- database may take EXECUTE on new functions from PUBLIC; of the views' functions some may have been dropped.
GRANT EXECUTE ON FUNCTION :"schema".:"planned"(text) TO PUBLIC;
DO $function$
DECLARE
  source pg_catalog.regprocedure;
BEGIN
  FOR source IN SELECT p.oid FROM pg_catalog.pg_proc AS p
    WHERE p.pronamespace = pg_catalog.to_regnamespace(pg_catalog.quote_ident(:'schema')) AND p.pronargs = 0
      AND p.proname IN (:'statsRows', :'errorsRows', :'groupsRows')
  LOOP
    EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', source);
  END LOOP;
END $function$;
