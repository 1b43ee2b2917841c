-- What the second version changed: columns, one check instead of nine, and two triggers that cost less.
ALTER TABLE :"schema".:"table"
  ADD COLUMN rule text,
  ADD COLUMN zone text,
  ADD COLUMN catchup boolean,
  ADD COLUMN overlap boolean,
  ADD COLUMN retry integer,
  ADD COLUMN backoff interval,
  ADD COLUMN sqlstate text[],
  ADD COLUMN attempt integer,
  ADD COLUMN errors jsonb,
  ADD COLUMN after bigint[],
  ADD COLUMN upon text,
  ADD COLUMN key text,
  ADD COLUMN args jsonb,
  ADD COLUMN gap interval,
  ADD COLUMN role name,
  ADD COLUMN created timestamptz,
  ADD COLUMN due timestamptz,
  ADD COLUMN wait integer,
  ADD COLUMN plain boolean,
  ALTER COLUMN created SET DEFAULT statement_timestamp(),
  ALTER COLUMN plain SET DEFAULT true,
  DROP CONSTRAINT task_active_check,
  DROP CONSTRAINT task_live_check,
  DROP CONSTRAINT task_repeat_check,
  DROP CONSTRAINT task_timeout_check,
  DROP CONSTRAINT task_count_check,
  DROP CONSTRAINT task_delimiter_check,
  DROP CONSTRAINT task_escape_check,
  DROP CONSTRAINT task_quote_check,
  DROP CONSTRAINT task_keep_check,
  ADD CHECK (active > interval '0' AND least(live, repeat, timeout, keep) >= interval '0'
    AND count >= 0 AND greatest(delimiter, escape, quote) <= E'\x7f');

DO $function$
DECLARE
  record text := pg_catalog.obj_description(oid, 'pg_trigger')
    FROM pg_catalog.pg_trigger WHERE tgrelid = :'qualified'::regclass AND tgname = :'readyInsertTrigger';
BEGIN
  DROP TRIGGER :"wakeUp" ON :"schema".:"table";
  CREATE TRIGGER :"wakeUp" AFTER INSERT OR DELETE OR TRUNCATE OR UPDATE OF plan, state ON :"schema".:"table"
    FOR EACH STATEMENT EXECUTE FUNCTION :"schema".:"wakeUp"();
  DROP TRIGGER :"readyInsertTrigger" ON :"schema".:"table";
  CREATE TRIGGER :"readyInsertTrigger" BEFORE INSERT ON :"schema".:"table" FOR EACH ROW
    WHEN (NEW.plan > statement_timestamp() OR NEW.state OPERATOR(pg_catalog.<>) 'PLAN' OR NEW.owner IS NOT NULL OR NEW.ready IS NOT TRUE)
    EXECUTE FUNCTION :"schema".:"readyFunction"();
  EXECUTE pg_catalog.format('COMMENT ON TRIGGER %I ON %s IS %L', :'readyInsertTrigger', :'qualified', record);
END $function$;
