-- The reset of a run right behind another is called without a query around it, says what that run is,
-- and makes sure that its transaction is as it would be in a new session.

DROP FUNCTION IF EXISTS :"schema".:"reset"(bigint);

-- Makes a session as new, and says when that began. It does what DISCARD ALL does but one thing: it
-- keeps plans, which nobody can see, and which `finish` and the tasks' own functions would otherwise
-- have to make anew each time. CLOSE is another statement in PL/pgSQL.
-- With the next task it is the beginning of that one's transaction, and says when it began. A rollback
-- of that brings back what there was before: whoever calls it resets the session once more then. What
-- is listened to would go at the transaction's end only, and what the transaction itself is does not
-- change any more, so that the next may not run at all where the task before has left such a thing.
-- The next one's group and its session's name are null where they are those of every new session.
CREATE OR REPLACE FUNCTION :"schema".:"reset"(next bigint, "group" text, name text) RETURNS timestamptz LANGUAGE plpgsql AS $function$
DECLARE
  began pg_catalog.timestamptz := pg_catalog.clock_timestamp();
  nothing pg_catalog.text;
BEGIN
  nothing := pg_catalog.pg_advisory_unlock_all();
  EXECUTE 'CLOSE ALL; DEALLOCATE ALL';
  SET SESSION AUTHORIZATION DEFAULT;
  RESET ALL;
  DISCARD TEMP;
  DISCARD SEQUENCES;
  IF next IS NULL THEN
    UNLISTEN *;
    RETURN began;
  END IF;
  IF EXISTS (SELECT FROM pg_catalog.pg_listening_channels()) THEN
    RAISE EXCEPTION 'the task before has left the session listening' USING ERRCODE = 'PGT02';
  END IF;
  IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) pg_catalog.current_setting('default_transaction_isolation')
    OR pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.<>) pg_catalog.current_setting('default_transaction_read_only')
    OR pg_catalog.current_setting('transaction_deferrable') OPERATOR(pg_catalog.<>) pg_catalog.current_setting('default_transaction_deferrable') THEN
    RAISE EXCEPTION 'the task before has changed what transactions are' USING ERRCODE = 'PGT02';
  END IF;
  IF "group" IS NOT NULL THEN
    nothing := pg_catalog.set_config('pg_task.group', "group", false);
    nothing := pg_catalog.set_config('application_name', name, false);
  END IF;
  nothing := pg_catalog.set_config('pg_task.id', next::pg_catalog.text, false);
  RETURN pg_catalog.now();
END $function$;

COMMENT ON FUNCTION :"schema".:"reset"(bigint, text, text) IS 'pg-task reset';
