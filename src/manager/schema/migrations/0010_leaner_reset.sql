-- The reset of a run right behind another at less cost: each expression of a function is set up anew in
-- each transaction, so what it checks and sets is one. The reset behind the last is a function of its own.

DROP FUNCTION IF EXISTS :"schema".:"reset"(bigint, text, text);

-- As before, but for what the task listens to: given up here, in its own transaction, since later it
-- would not be before the end of the next. Nobody hears what a session listens to.
CREATE OR REPLACE FUNCTION :"schema".:"finish"(task bigint, taken bigint, holder text, ledger integer)
RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
  me pg_catalog.text;
  found_state pg_catalog.text;
  found_owner pg_catalog.text;
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
-- have to make anew each time. CLOSE is another statement in PL/pgSQL.
CREATE OR REPLACE FUNCTION :"schema".:"reset"() RETURNS timestamptz LANGUAGE plpgsql AS $function$
DECLARE
  began pg_catalog.timestamptz := pg_catalog.clock_timestamp();
BEGIN
  EXECUTE 'CLOSE ALL';
  DEALLOCATE ALL;
  SET SESSION AUTHORIZATION DEFAULT;
  RESET ALL;
  DISCARD TEMP;
  DISCARD SEQUENCES;
  UNLISTEN *;
  PERFORM pg_catalog.pg_advisory_unlock_all();
  RETURN began;
END $function$;

-- The same as the beginning of the next task's transaction, which it says the time of. A rollback of that
-- brings back what there was before: whoever calls it resets the session once more then. What its
-- transaction inherits of the one before cannot be changed any more, so that the next may not run at all
-- where it is not as in a new session: whether it only reads, which the task before may have changed, and
-- how isolated it is, which a RESET may (up to PostgreSQL 15) or the server's configuration. Its group
-- and its session's name are null where they are those of every new session.
CREATE OR REPLACE FUNCTION :"schema".:"reset"(next text, "group" text, name text) RETURNS timestamptz LANGUAGE plpgsql AS $function$
BEGIN
  EXECUTE 'CLOSE ALL';
  DEALLOCATE ALL;
  SET SESSION AUTHORIZATION DEFAULT;
  RESET ALL;
  DISCARD TEMP;
  DISCARD SEQUENCES;
  IF pg_catalog.pg_advisory_unlock_all() IS NOT NULL
    AND pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) pg_catalog.current_setting('default_transaction_read_only')
    AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) pg_catalog.current_setting('default_transaction_isolation')
    AND pg_catalog.set_config('pg_task.id', next, false) IS NOT NULL
    AND ("group" IS NULL OR pg_catalog.set_config('pg_task.group', "group", false) IS NOT NULL
      AND pg_catalog.set_config('application_name', name, false) IS NOT NULL) THEN
    RETURN pg_catalog.now();
  END IF;
  RAISE EXCEPTION 'the transaction is not as those of a new session' USING ERRCODE = 'PGT02';
END $function$;

COMMENT ON FUNCTION :"schema".:"reset"() IS 'pg-task reset';
COMMENT ON FUNCTION :"schema".:"reset"(text, text, text) IS 'pg-task reset';
