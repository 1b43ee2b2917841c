-- Where a run comes right behind another, the reset of that is the beginning of its own transaction.

DROP FUNCTION IF EXISTS :"schema".:"reset"();

-- Makes a session as new, and says when that began. It does what DISCARD ALL does but one thing: it
-- keeps plans, which nobody can see, and which `finish` and the tasks' own functions would otherwise
-- have to make anew each time. CLOSE is another statement in PL/pgSQL.
-- With the next task it is the beginning of that one's transaction, and says when it began. A rollback
-- of that brings back what there was before: whoever calls it resets the session once more then. What is
-- listened to would go at the transaction's end only, so that the next may not run at all.
CREATE OR REPLACE FUNCTION :"schema".:"reset"(next bigint) RETURNS timestamptz LANGUAGE plpgsql AS $function$
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
  nothing := pg_catalog.set_config('pg_task.id', next::pg_catalog.text, false);
  RETURN pg_catalog.now();
END $function$;

COMMENT ON FUNCTION :"schema".:"reset"(bigint) IS 'pg-task reset';
