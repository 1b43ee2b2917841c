-- What a session does for each run at little cost.

-- When the run was, for the row of one whose session dies before it has told.
ALTER TABLE :"schema".:"ledger1" ADD COLUMN IF NOT EXISTS start timestamptz, ADD COLUMN IF NOT EXISTS stop timestamptz;
ALTER TABLE :"schema".:"ledger2" ADD COLUMN IF NOT EXISTS start timestamptz, ADD COLUMN IF NOT EXISTS stop timestamptz;

-- As before; it looks by itself whether anything was written, and does its usual work in one statement.
-- Nothing here may be a name that is not qualified, since that would be the task's to choose.
CREATE OR REPLACE FUNCTION :"schema".:"finish"(task bigint, taken bigint, holder text, ledger integer)
RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
  me pg_catalog.text;
  found_state pg_catalog.text;
  found_owner pg_catalog.text;
  own pg_catalog.bool;
BEGIN
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
  SELECT t.state::pg_catalog.text, t.owner
  INTO found_state, found_owner FROM :"schema".:"table" AS t WHERE t.id OPERATOR(pg_catalog.=) task;
  IF NOT FOUND THEN
    own := pg_catalog.current_setting('pgtask.deleted', true) OPERATOR(pg_catalog.=) me;
  ELSIF found_state OPERATOR(pg_catalog.=) 'STOP'::pg_catalog.text THEN
    own := found_owner OPERATOR(pg_catalog.=) holder
      AND pg_catalog.current_setting('pgtask.stopped', true) OPERATOR(pg_catalog.=) me;
  ELSE
    own := found_owner OPERATOR(pg_catalog.=) holder;
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

-- Makes a session as new, and says when that began. It does what DISCARD ALL does but one thing: it
-- keeps plans, which nobody can see, and which `finish` and the tasks' own functions would otherwise
-- have to make anew each time. Some of these commands are no statements of PL/pgSQL.
CREATE OR REPLACE FUNCTION :"schema".:"reset"() RETURNS timestamptz LANGUAGE plpgsql AS $function$
DECLARE
  began pg_catalog.timestamptz := pg_catalog.clock_timestamp();
BEGIN
  PERFORM pg_catalog.pg_advisory_unlock_all();
  EXECUTE 'CLOSE ALL';
  SET SESSION AUTHORIZATION DEFAULT;
  RESET ALL;
  EXECUTE 'DEALLOCATE ALL';
  UNLISTEN *;
  DISCARD TEMP;
  DISCARD SEQUENCES;
  RETURN began;
END $function$;

COMMENT ON FUNCTION :"schema".:"reset"() IS 'pg-task reset';
