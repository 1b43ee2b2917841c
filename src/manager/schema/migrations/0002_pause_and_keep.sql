-- Pausing the table or groups of it, and removing finished rows after a while.

-- It may be left over from a table that was dropped; one of somebody else's fails at the next line.
CREATE TABLE IF NOT EXISTS :"schema".:"pauseTable" (
  "group" text,
  since timestamptz NOT NULL DEFAULT statement_timestamp(),
  reason text
);
SELECT "group", since, reason FROM :"schema".:"pauseTable" LIMIT 0;

COMMENT ON TABLE :"schema".:"pauseTable" IS 'A row for each group whose tasks do not start; a null group is all of them';
COMMENT ON COLUMN :"schema".:"pauseTable"."group" IS 'Group name, null for the whole table';
COMMENT ON COLUMN :"schema".:"pauseTable".since IS 'When it was paused';
COMMENT ON COLUMN :"schema".:"pauseTable".reason IS 'The user''s own';

DROP TRIGGER IF EXISTS :"pauseWakeUp" ON :"schema".:"pauseTable";
CREATE TRIGGER :"pauseWakeUp" AFTER INSERT OR DELETE OR TRUNCATE OR UPDATE ON :"schema".:"pauseTable" FOR EACH STATEMENT
  EXECUTE FUNCTION :"schema".:"wakeUp"();

-- The default in one step with the column gives it to the rows that are there without touching them.
-- A table of the user's may have such a column, with a default of its own.
-- PostgreSQL 12 would add the check of IF NOT EXISTS to a column that is there.
DO $function$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute
      WHERE attrelid = :'qualified'::pg_catalog.regclass AND attname = 'keep' AND NOT attisdropped) THEN
    ALTER TABLE :"schema".:"table" ADD COLUMN keep interval NOT NULL
      DEFAULT COALESCE(NULLIF(current_setting('pg_task.keep', true), ''), '0 sec')::interval CHECK (keep >= interval '0');
  END IF;
END $function$;

COMMENT ON COLUMN :"schema".:"table".keep IS 'How long the row is kept after its stop, 0 is for ever';

-- By id, not by stop: an index on what completion writes would cost every completion.
CREATE INDEX IF NOT EXISTS :"keepIndex" ON :"schema".:"table" (id) WHERE keep > interval '0';
