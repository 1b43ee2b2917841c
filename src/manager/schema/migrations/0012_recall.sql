-- A run that was sent behind another can be recalled until it begins: it begins only while the manager holds
-- the lock of its session's permit.

DROP FUNCTION IF EXISTS :"schema".:"reset"(text, text, text);

-- As before, but it fails where nobody holds the permit; and it takes the lock of the next run, which its
-- transaction holds to its end.
CREATE OR REPLACE FUNCTION :"schema".:"reset"(next text, "group" text, name text, lock integer, permit integer) RETURNS timestamptz LANGUAGE plpgsql AS $function$
BEGIN
  EXECUTE 'CLOSE ALL';
  DEALLOCATE ALL;
  SET SESSION AUTHORIZATION DEFAULT;
  RESET ALL;
  DISCARD TEMP;
  DISCARD SEQUENCES;
  IF pg_catalog.pg_advisory_unlock_all() IS NOT NULL
    AND NOT pg_catalog.pg_try_advisory_xact_lock_shared(:'permitClass', permit)
    AND pg_catalog.pg_try_advisory_xact_lock(pg_catalog.pg_backend_pid(), lock)
    AND pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) pg_catalog.current_setting('default_transaction_read_only')
    AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) pg_catalog.current_setting('default_transaction_isolation')
    AND pg_catalog.set_config('pg_task.id', next, false) IS NOT NULL
    AND ("group" IS NULL OR pg_catalog.set_config('pg_task.group', "group", false) IS NOT NULL
      AND pg_catalog.set_config('application_name', name, false) IS NOT NULL) THEN
    RETURN pg_catalog.now();
  END IF;
  RAISE EXCEPTION 'the run was recalled, or its transaction is not as those of a new session' USING ERRCODE = 'PGT02';
END $function$;

COMMENT ON FUNCTION :"schema".:"reset"(text, text, text, integer, integer) IS 'pg-task reset';
