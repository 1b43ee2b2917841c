-- The task table, its indexes and its triggers.

-- fillfactor leaves room for the row's next two versions on its own page, so that claim and
-- completion need not look for another.
CREATE TABLE :"schema".:"table" (
  id bigserial PRIMARY KEY,
  parent bigint,
  plan timestamptz NOT NULL,
  take timestamptz,
  start timestamptz,
  stop timestamptz,
  active interval NOT NULL CHECK (active > interval '0'),
  live interval NOT NULL CHECK (live >= interval '0'),
  repeat interval NOT NULL CHECK (repeat >= interval '0'),
  timeout interval NOT NULL CHECK (timeout >= interval '0'),
  count integer NOT NULL CHECK (count >= 0),
  hash integer NOT NULL GENERATED ALWAYS AS (hashtext("group" || coalesce(remote, ''))) STORED,
  max integer NOT NULL,
  pid integer,
  crash integer NOT NULL DEFAULT 0,
  state :"schema".state NOT NULL DEFAULT 'PLAN',
  ready boolean DEFAULT true,
  delete boolean NOT NULL,
  drift boolean NOT NULL,
  header boolean NOT NULL,
  save boolean NOT NULL,
  string boolean NOT NULL,
  atomic boolean NOT NULL,
  delimiter "char" NOT NULL CHECK (delimiter <= E'\x7f'),
  escape "char" NOT NULL CHECK (escape <= E'\x7f'),
  quote "char" NOT NULL CHECK (quote <= E'\x7f'),
  data text,
  error text,
  "group" text NOT NULL,
  input text NOT NULL,
  "null" text NOT NULL,
  output text,
  owner text,
  remote text
) WITH (fillfactor = 60);

COMMENT ON TABLE :"schema".:"table" IS 'Tasks: the SQL in input runs at its plan';
COMMENT ON COLUMN :"schema".:"table".id IS 'Primary key';
COMMENT ON COLUMN :"schema".:"table".parent IS 'Task that inserted this one or was repeated into it';
COMMENT ON COLUMN :"schema".:"table".plan IS 'Planned start';
COMMENT ON COLUMN :"schema".:"table".take IS 'When it was claimed';
COMMENT ON COLUMN :"schema".:"table".start IS 'Actual start';
COMMENT ON COLUMN :"schema".:"table".stop IS 'Actual stop';
COMMENT ON COLUMN :"schema".:"table".active IS 'How long after its plan the task is still worth running';
COMMENT ON COLUMN :"schema".:"table".live IS 'How long one session lives';
COMMENT ON COLUMN :"schema".:"table".repeat IS 'Repeat after this';
COMMENT ON COLUMN :"schema".:"table".timeout IS 'Allowed run time, 0 is unlimited';
COMMENT ON COLUMN :"schema".:"table".count IS 'Tasks that one session runs before it goes';
COMMENT ON COLUMN :"schema".:"table".hash IS 'What tasks are grouped by: made from group and remote';
COMMENT ON COLUMN :"schema".:"table".max IS 'How many others of its group may run beside it, negative: pause in milliseconds';
COMMENT ON COLUMN :"schema".:"table".pid IS 'Process of the server that runs the task';
COMMENT ON COLUMN :"schema".:"table".crash IS 'Deaths of its own thread or backend so far';
COMMENT ON COLUMN :"schema".:"table".state IS 'PLAN, TAKE, WORK, DONE, FAIL, GONE or STOP';
COMMENT ON COLUMN :"schema".:"table".ready IS 'For pg-task''s own use: due, not due yet, or null when it does not wait';
COMMENT ON COLUMN :"schema".:"table".delete IS 'Delete the row when output and error are both null';
COMMENT ON COLUMN :"schema".:"table".drift IS 'The next plan counts from the stop, not from the plan';
COMMENT ON COLUMN :"schema".:"table".header IS 'Column names in output';
COMMENT ON COLUMN :"schema".:"table".save IS 'Keep session state between the tasks of one session';
COMMENT ON COLUMN :"schema".:"table".string IS 'Quote only strings';
COMMENT ON COLUMN :"schema".:"table".atomic IS 'Effect and DONE in one transaction where the SQL allows it';
COMMENT ON COLUMN :"schema".:"table".delimiter IS 'Between columns of output';
COMMENT ON COLUMN :"schema".:"table".escape IS 'Escapes in output';
COMMENT ON COLUMN :"schema".:"table".quote IS 'Quotes in output';
COMMENT ON COLUMN :"schema".:"table".data IS 'The user''s own';
COMMENT ON COLUMN :"schema".:"table".error IS 'Errors of the run';
COMMENT ON COLUMN :"schema".:"table"."group" IS 'Group name';
COMMENT ON COLUMN :"schema".:"table".input IS 'SQL to run';
COMMENT ON COLUMN :"schema".:"table"."null" IS 'Null in output';
COMMENT ON COLUMN :"schema".:"table".output IS 'Result';
COMMENT ON COLUMN :"schema".:"table".owner IS 'For pg-task''s own use: the session that has the task, null when none has';
COMMENT ON COLUMN :"schema".:"table".remote IS 'Connection string of another database';

-- Only claiming takes a row out of these: a row's completion changes no indexed column, so it can
-- stay on its page.
CREATE INDEX :"dueIndex" ON :"schema".:"table" (hash, greatest(max, 0) DESC, id) WHERE ready;
CREATE INDEX :"planIndex" ON :"schema".:"table" (plan) WHERE NOT ready;

-- Keeps ready true to plan and state for everybody else's writes. A row that a session still has
-- is not offered again, whatever its state was set to: its run has to end first.
CREATE OR REPLACE FUNCTION :"schema".:"readyFunction"() RETURNS trigger LANGUAGE plpgsql AS $function$ BEGIN
  IF NEW.state::pg_catalog.text OPERATOR(pg_catalog.=) 'PLAN'::pg_catalog.text AND NEW.owner IS NULL THEN
    NEW.ready := NEW.plan OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp();
  ELSE
    NEW.ready := NULL;
  END IF;
  RETURN NEW;
END $function$;

CREATE TRIGGER :"readyInsertTrigger" BEFORE INSERT ON :"schema".:"table" FOR EACH ROW
  WHEN (NEW.plan > statement_timestamp() OR NEW.state::text <> 'PLAN' OR NEW.owner IS NOT NULL OR NEW.ready IS NOT TRUE)
  EXECUTE FUNCTION :"schema".:"readyFunction"();

CREATE TRIGGER :"readyUpdateTrigger" BEFORE UPDATE OF plan, state, ready ON :"schema".:"table" FOR EACH ROW
  WHEN (current_setting('pgtask.manager', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION :"schema".:"readyFunction"();

CREATE OR REPLACE FUNCTION :"schema".:"wakeUp"() RETURNS trigger LANGUAGE plpgsql AS $function$ BEGIN
  PERFORM pg_catalog.pg_notify(pg_catalog.concat('pg_task_', TG_RELID), '');
  RETURN NULL;
END $function$;

COMMENT ON FUNCTION :"schema".:"wakeUp"() IS 'pg-task wake-up';

CREATE TRIGGER :"wakeUp" AFTER INSERT OR DELETE OR TRUNCATE OR UPDATE OF plan, state ON :"schema".:"table" FOR EACH STATEMENT
  WHEN (current_setting('pgtask.manager', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION :"schema".:"wakeUp"();
