-- The first version of a task table and what belonged to it. A migration replaces the functions, so they do nothing
-- here, but have the parameters, results and comments that the first version gave them.

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
  remote text,
  keep interval NOT NULL CHECK (keep >= interval '0')
) WITH (fillfactor = 60);

CREATE INDEX :"dueIndex" ON :"schema".:"table" (hash, greatest(max, 0) DESC, id) WHERE ready;
CREATE INDEX :"planIndex" ON :"schema".:"table" (plan) WHERE NOT ready;
CREATE INDEX :"keepIndex" ON :"schema".:"table" (id) WHERE keep > interval '0';

CREATE FUNCTION :"schema".:"readyFunction"() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE FUNCTION :"schema".:"wakeUp"() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION :"schema".:"planned"(setting text) RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION :"schema".:"finish"(task bigint, taken bigint, holder text, ledger integer)
RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION :"schema".:"reset"() RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION :"schema".:"reset"(next text, "group" text, name text, lock integer, permit integer)
RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION :"schema".:"statsRows"()
RETURNS TABLE (hour timestamptz, count bigint, failed bigint, total interval, mean interval, max interval, p95 interval)
LANGUAGE plpgsql STABLE AS 'BEGIN END';
CREATE FUNCTION :"schema".:"errorsRows"() RETURNS TABLE (error text, count bigint, last_seen timestamptz, last_id bigint)
LANGUAGE plpgsql STABLE AS 'BEGIN END';
CREATE FUNCTION :"schema".:"groupsRows"()
RETURNS TABLE ("group" text, running bigint, waiting bigint, due bigint, oldest timestamptz, paused boolean)
LANGUAGE plpgsql STABLE AS 'BEGIN END';

COMMENT ON FUNCTION :"schema".:"wakeUp"() IS 'pg-task wake-up';
COMMENT ON FUNCTION :"schema".:"planned"(text) IS 'pg-task planned';
COMMENT ON FUNCTION :"schema".:"finish"(bigint, bigint, text, integer) IS 'pg-task finish';
COMMENT ON FUNCTION :"schema".:"reset"() IS 'pg-task reset';
COMMENT ON FUNCTION :"schema".:"reset"(text, text, text, integer, integer) IS 'pg-task reset';
COMMENT ON FUNCTION :"schema".:"statsRows"() IS 'pg-task rows of a view';
COMMENT ON FUNCTION :"schema".:"errorsRows"() IS 'pg-task rows of a view';
COMMENT ON FUNCTION :"schema".:"groupsRows"() IS 'pg-task rows of a view';

CREATE VIEW :"schema".:"statsView" AS SELECT * FROM :"schema".:"statsRows"();
CREATE VIEW :"schema".:"errorsView" AS SELECT * FROM :"schema".:"errorsRows"();
CREATE VIEW :"schema".:"groupsView" AS SELECT * FROM :"schema".:"groupsRows"();
COMMENT ON VIEW :"schema".:"statsView" IS 'pg-task view: finished runs by hour';
COMMENT ON VIEW :"schema".:"errorsView" IS 'pg-task view: errors by their first line';
COMMENT ON VIEW :"schema".:"groupsView" IS 'pg-task view: groups in which tasks run, wait or are paused';

CREATE TRIGGER :"readyInsertTrigger" BEFORE INSERT ON :"schema".:"table" FOR EACH ROW
  WHEN (NEW.plan > statement_timestamp() OR NEW.state::text <> 'PLAN' OR NEW.owner IS NOT NULL OR NEW.ready IS NOT TRUE)
  EXECUTE FUNCTION :"schema".:"readyFunction"();
CREATE TRIGGER :"readyUpdateTrigger" BEFORE UPDATE OF plan, state, ready ON :"schema".:"table" FOR EACH ROW
  WHEN (current_setting('pgtask.manager', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION :"schema".:"readyFunction"();
CREATE TRIGGER :"wakeUp" AFTER INSERT OR DELETE OR TRUNCATE OR UPDATE OF plan, state ON :"schema".:"table" FOR EACH STATEMENT
  WHEN (current_setting('pgtask.manager', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION :"schema".:"wakeUp"();
CREATE TRIGGER :"ownDeleteTrigger" AFTER DELETE ON :"schema".:"table" FOR EACH ROW
  WHEN (OLD.id::text = current_setting('pg_task.id', true)) EXECUTE FUNCTION :"schema".:"wakeUp"();

CREATE TABLE :"schema".:"pauseTable" (
  "group" text,
  since timestamptz NOT NULL DEFAULT statement_timestamp(),
  reason text
);
CREATE TRIGGER :"pauseWakeUp" AFTER INSERT OR DELETE OR TRUNCATE OR UPDATE ON :"schema".:"pauseTable" FOR EACH STATEMENT
  EXECUTE FUNCTION :"schema".:"wakeUp"();

CREATE TABLE :"schema".:"ledger1" (
  id bigint NOT NULL,
  take bigint NOT NULL,
  running boolean NOT NULL,
  start timestamptz,
  stop timestamptz,
  place text
) WITH (autovacuum_enabled = off);
CREATE TABLE :"schema".:"ledger2" (LIKE :"schema".:"ledger1") WITH (autovacuum_enabled = off);
