-- A task table and the objects that belong to it. src/manager/schema/taskTable.ts defines their names, and
-- src/shared/taskColumns.ts the columns. A table that exists, because an earlier pg-task has created it or because it
-- is adopted, gets everything except what is about the table itself: statements that begin with CREATE or COMMENT and
-- name the table, and TRUNCATE. All others are repeatable, and bring the objects to what is described here. A change
-- therefore edits this file, and gives the table the next version (src/manager/schema/migrations.ts).
--
-- Function bodies run with the caller's search_path, often that of a task. They qualify every function, type and
-- operator, so that a task cannot substitute its own.

-- == Table ==

-- The fillfactor leaves room on the page for the row versions that claim and completion write. The bounds are one
-- check, because the server prepares the expression of each check for each statement that inserts. Columns that few
-- tasks use allow null and have no checks: a trigger that fires only for rows that use them checks their values.
CREATE TABLE :"schema".:"table" (
  :columns,
  CHECK (active > interval '0' AND least(live, repeat, timeout, keep) >= interval '0'
    AND count >= 0 AND greatest(delimiter, escape, quote) <= E'\x7f')
) WITH (fillfactor = 60);

COMMENT ON TABLE :"schema".:"table" IS 'Tasks: the SQL in input runs at its plan';

-- == Indexes ==

-- The due tasks of each group in the order in which they start, and the planned tasks by time. Completion changes no
-- indexed column, so it is a HOT update.
CREATE INDEX :"dueIndex" ON :"schema".:"table" (hash, greatest(max, 0) DESC, id) WHERE ready;
CREATE INDEX :"planIndex" ON :"schema".:"table" (plan) WHERE NOT ready;

-- For pruning. The key is id, because completion writes stop and could not be a HOT update.
CREATE INDEX :"keepIndex" ON :"schema".:"table" (id) WHERE keep > interval '0';

-- == Trigger functions ==

-- Maintains the column ready in all writes except the manager's. A row with an owner is not due, because its run has to
-- end first. The function also records who changed the state of a running task: a negated pid means that the task
-- itself did. Stored in the row, this is undone by a rollback to a savepoint, and kept by a commit in the middle of the
-- run. A task cannot change a state that another session has set.
CREATE OR REPLACE FUNCTION :"schema".:"readyFunction"() RETURNS trigger LANGUAGE plpgsql AS $function$ BEGIN
  IF NEW.state::pg_catalog.text OPERATOR(pg_catalog.=) 'PLAN'::pg_catalog.text AND NEW.owner IS NULL THEN
    NEW.ready := NEW.plan OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp();
  ELSE
    NEW.ready := NULL;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.<>) 'UPDATE'::pg_catalog.text THEN
    RETURN NEW;
  END IF;
  -- The manager tells the ends that it writes.
  IF NEW.tell IS NOT NULL AND NEW.state::pg_catalog.text OPERATOR(pg_catalog.<>) OLD.state::pg_catalog.text
    AND NEW.state::pg_catalog.text OPERATOR(pg_catalog.<>) ALL (ARRAY['PLAN', 'TAKE', 'WORK']::pg_catalog.text[]) THEN
    PERFORM pg_catalog.pg_notify(NEW.tell, pg_catalog.concat(NEW.id, ' ', NEW.state));
  END IF;
  IF NEW.owner IS NULL THEN
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

-- Wakes the manager, once per statement, except in busy mode, which the manager signals by holding an advisory lock:
-- NOTIFY serializes commits. As a row trigger (ownDeleteTrigger) and for TRUNCATE, the function also records for
-- `finish` that a task deleted its own row, unless another session had set the state of the row before.
--
-- Tells the task table from the pause table by the name of the trigger. A function that names the table would make
-- every INSERT fail once the table or its schema has been renamed.
--
-- A transaction that has sent a notification cannot be prepared (PREPARE TRANSACTION), so `pg_task.notify` can be off.
--
-- PL/pgSQL evaluates the condition of an IF without starting the executor, as each PERFORM does. In the function,
-- conditions are prepared once per session, in WHEN for each statement.
CREATE OR REPLACE FUNCTION :"schema".:"wakeUp"() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
  root pg_catalog.oid := coalesce(pg_catalog.pg_partition_root(TG_RELID)::pg_catalog.oid, TG_RELID);
  lock pg_catalog.int4;
  own pg_catalog.bool := true;
BEGIN
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT'::pg_catalog.text
    AND pg_catalog.current_setting('pgtask.manager', true) OPERATOR(pg_catalog.=) 'on'::pg_catalog.text
    AND TG_NAME OPERATOR(pg_catalog.<>) :'pauseWakeUp'::pg_catalog.name THEN
    RETURN NULL;
  END IF;
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'ROW'::pg_catalog.text OR TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE'::pg_catalog.text THEN
    IF TG_LEVEL OPERATOR(pg_catalog.=) 'ROW'::pg_catalog.text THEN
      own := OLD.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK']::pg_catalog.text[])
        OR OLD.pid OPERATOR(pg_catalog.<) 0;
    END IF;
    IF own AND TG_NAME OPERATOR(pg_catalog.<>) :'pauseWakeUp'::pg_catalog.name THEN
      PERFORM pg_catalog.set_config('pgtask.deleted',
        pg_catalog.concat(root, ' ', pg_catalog.current_setting('pg_task.id', true)), true);
    END IF;
    IF TG_LEVEL OPERATOR(pg_catalog.=) 'ROW'::pg_catalog.text THEN
      RETURN NULL;
    END IF;
  END IF;
  lock := root::pg_catalog.int8::pg_catalog.bit(32)::pg_catalog.int4;
  IF pg_catalog.lower(coalesce(pg_catalog.current_setting('pg_task.notify', true), ''))
      OPERATOR(pg_catalog.<>) ALL (ARRAY['off', 'false', 'no', '0']::pg_catalog.text[])
    AND pg_catalog.pg_try_advisory_lock_shared(:'busyClass', lock)
    AND pg_catalog.pg_advisory_unlock_shared(:'busyClass', lock)
    AND pg_catalog.pg_notify(pg_catalog.concat('pg_task_', root), '') IS NULL THEN
    RETURN NULL;
  END IF;
  RETURN NULL;
END $function$;

COMMENT ON FUNCTION :"schema".:"wakeUp"() IS 'pg-task wake-up';

-- == Triggers ==

CREATE TRIGGER :"readyInsertTrigger" BEFORE INSERT ON :"schema".:"table" FOR EACH ROW
  WHEN (NEW.plan > statement_timestamp() OR NEW.state::text <> 'PLAN' OR NEW.owner IS NOT NULL OR NEW.ready IS NOT TRUE)
  EXECUTE FUNCTION :"schema".:"readyFunction"();

CREATE TRIGGER :"readyUpdateTrigger" BEFORE UPDATE OF plan, state, ready ON :"schema".:"table" FOR EACH ROW
  WHEN (current_setting('pgtask.manager', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION :"schema".:"readyFunction"();

CREATE TRIGGER :"wakeUp" AFTER INSERT OR DELETE OR TRUNCATE OR UPDATE OF plan, state ON :"schema".:"table" FOR EACH STATEMENT
  EXECUTE FUNCTION :"schema".:"wakeUp"();

CREATE TRIGGER :"ownDeleteTrigger" AFTER DELETE ON :"schema".:"table" FOR EACH ROW
  WHEN (OLD.id::text = current_setting('pg_task.id', true)) EXECUTE FUNCTION :"schema".:"wakeUp"();

-- == Default of plan ==

-- Converts the setting pg_task.plan to a time. It is a timestamp, an interval from now, or a clock function plus or
-- minus an interval. It is never executed, because the inserting role may have more privileges than the role that set
-- it.
--
-- PL/pgSQL compares the values of a CASE with the operator = of the search_path.
CREATE OR REPLACE FUNCTION :"schema".:"planned"(setting text) RETURNS timestamptz LANGUAGE plpgsql AS $function$
DECLARE
  parts pg_catalog.text[] := pg_catalog.regexp_match(setting,
    '^ *(?:pg_catalog[.])?(?:(statement_timestamp|now|transaction_timestamp|clock_timestamp) *[(] *[)]|(current_timestamp)) *'
    '(?:([+-]) *(?:interval *)?''([^'']*)'' *(?::: *interval)?)? *$', 'i');
  clock pg_catalog.timestamptz := pg_catalog.statement_timestamp();
BEGIN
  IF parts IS NOT NULL THEN
    IF pg_catalog.lower(parts[1]) OPERATOR(pg_catalog.=) 'clock_timestamp'::pg_catalog.text THEN
      clock := pg_catalog.clock_timestamp();
    ELSIF pg_catalog.lower(parts[1]) OPERATOR(pg_catalog.=) 'statement_timestamp'::pg_catalog.text THEN
      NULL;
    ELSE
      clock := pg_catalog.now();
    END IF;
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
    RAISE EXCEPTION 'pg_task.plan is not a time, an interval, or a clock function plus or minus an interval: "%"', setting
      USING ERRCODE = 'invalid_datetime_format', HINT = 'Other expressions are allowed only in the configuration file.';
  END;
END $function$;

COMMENT ON FUNCTION :"schema".:"planned"(text) IS 'pg-task planned';

-- Default privileges may have revoked EXECUTE from PUBLIC, but every role that inserts tasks calls the function.
GRANT EXECUTE ON FUNCTION :"schema".:"planned"(text) TO PUBLIC;

-- == Pauses ==

-- A table of this name may be left over from a dropped task table.
CREATE TABLE IF NOT EXISTS :"schema".:"pauseTable" (
  "group" text,
  since timestamptz NOT NULL DEFAULT statement_timestamp(),
  reason text
);

COMMENT ON TABLE :"schema".:"pauseTable" IS 'Paused groups, whose tasks do not start; a null group pauses the whole table';
COMMENT ON COLUMN :"schema".:"pauseTable"."group" IS 'Group name, null for the whole table';
COMMENT ON COLUMN :"schema".:"pauseTable".since IS 'When it was paused';
COMMENT ON COLUMN :"schema".:"pauseTable".reason IS 'Reason, for users to read';

-- With a publication FOR ALL TABLES, the server refuses UPDATE and DELETE in a table without a replica identity. A
-- group can be null, so the key is a number.
DO $function$
DECLARE
  pauses pg_catalog.regclass := pg_catalog.format('%I.%I', :'schema', :'pauseTable');
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid OPERATOR(pg_catalog.=) pauses AND a.attname OPERATOR(pg_catalog.=) 'id' AND NOT a.attisdropped) THEN
    ALTER TABLE :"schema".:"pauseTable" ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY;
  END IF;
END $function$;

COMMENT ON COLUMN :"schema".:"pauseTable".id IS 'For replication, which needs a key';

DROP TRIGGER IF EXISTS :"pauseWakeUp" ON :"schema".:"pauseTable";
CREATE TRIGGER :"pauseWakeUp" AFTER INSERT OR DELETE OR TRUNCATE OR UPDATE ON :"schema".:"pauseTable" FOR EACH STATEMENT
  EXECUTE FUNCTION :"schema".:"wakeUp"();

-- == Ledgers ==

-- A run commits its effect and its ledger row in one transaction. Of the two ledgers, one can be truncated while runs
-- write to the other, so they need no autovacuum. They have no index, because they are read only after a session has
-- died, and then in full. If it has not reported a result, `start` and `stop` are copied to the task's row. A row with
-- a `place` is not a proof: it is written before a remote task starts, and names the server that is queried if the
-- local session is lost. An empty place means that no query is needed.
CREATE TABLE IF NOT EXISTS :"schema".:"ledger1" (
  id bigint NOT NULL,
  take bigint NOT NULL,
  running boolean NOT NULL,
  start timestamptz,
  stop timestamptz,
  place text
) WITH (autovacuum_enabled = off);

CREATE TABLE IF NOT EXISTS :"schema".:"ledger2" (LIKE :"schema".:"ledger1") WITH (autovacuum_enabled = off);

-- Removes rows left over from a dropped task table. Not executed for an existing task table, because its
-- runs may have proofs here.
TRUNCATE :"schema".:"ledger1", :"schema".:"ledger2";

COMMENT ON TABLE :"schema".:"ledger1" IS 'For pg-task''s own use: runs whose effect was committed, and where remote ones run';
COMMENT ON TABLE :"schema".:"ledger2" IS 'For pg-task''s own use: runs whose effect was committed, and where remote ones run';

-- They get no key, because each run would have to write its index.
ALTER TABLE :"schema".:"ledger1" REPLICA IDENTITY FULL;

ALTER TABLE :"schema".:"ledger2" REPLICA IDENTITY FULL;

-- == Dependencies and owed successors ==

-- With `failed`, the predecessor has ended, but not as DONE; such a row is kept only for tasks that wait for a failure. If
-- it is null, the predecessor has ended, and is not pruned before the task has ended, which may read its output.
-- The second table has the ended tasks whose successors the server has rejected so far. Their `error` says why.
CREATE TABLE IF NOT EXISTS :"schema".:"dependencyTable" (
  predecessor bigint NOT NULL,
  task bigint NOT NULL,
  failed boolean DEFAULT false,
  PRIMARY KEY (predecessor, task)
);

ALTER TABLE :"schema".:"dependencyTable" ALTER failed DROP NOT NULL;

CREATE INDEX IF NOT EXISTS :"dependencyIndex" ON :"schema".:"dependencyTable" (task);

CREATE TABLE IF NOT EXISTS :"schema".:"owedTable" (task bigint PRIMARY KEY);

-- Removes rows left over from a dropped task table.
TRUNCATE :"schema".:"dependencyTable", :"schema".:"owedTable";

COMMENT ON TABLE :"schema".:"dependencyTable" IS 'For pg-task''s own use: which waiting tasks wait for the end of which tasks';
COMMENT ON TABLE :"schema".:"owedTable" IS 'For pg-task''s own use: ended tasks whose next run could not be planned yet';

-- == Turns ==

-- The chains that run alone, in a group or, if it is null, in the table. Before a turn has begun, it waits for the end of
-- tasks that run, and no others start.
CREATE TABLE IF NOT EXISTS :"schema".:"turnTable" (turn bigint PRIMARY KEY, "group" text, begun boolean NOT NULL DEFAULT false);

-- Removes rows left over from a dropped task table.
TRUNCATE :"schema".:"turnTable";

COMMENT ON TABLE :"schema".:"turnTable" IS 'For pg-task''s own use: chains that run alone';

-- == Failures in a row ==

-- How many tasks of a group with `suspend` have failed in a row. Schedules count in their rows. The hash is that of the
-- name of the group, which could be too long for an index.
CREATE TABLE IF NOT EXISTS :"schema".:"failureTable" (hash bigint PRIMARY KEY, failures integer NOT NULL);

-- Removes rows left over from a dropped task table.
TRUNCATE :"schema".:"failureTable";

COMMENT ON TABLE :"schema".:"failureTable" IS 'For pg-task''s own use: how many tasks of a group have failed in a row';

-- Tells the manager, whose log says it, and returns the plan of a paused schedule. Messages of the level INFO reach the
-- client whatever client_min_messages is.
CREATE OR REPLACE FUNCTION :"schema".:"suspended"(about jsonb, channel text) RETURNS timestamptz LANGUAGE plpgsql AS $function$ BEGIN
  RAISE INFO 'suspended' USING ERRCODE = 'PGT02', DETAIL = about;
  IF channel IS NOT NULL THEN
    PERFORM pg_catalog.pg_notify(channel, pg_catalog.concat(about OPERATOR(pg_catalog.->>) 'id'::pg_catalog.text, ' SUSPENDED'));
  END IF;
  RETURN 'infinity';
END $function$;

COMMENT ON FUNCTION :"schema".:"suspended"(jsonb, text) IS 'pg-task suspended';

-- Counts the end of a task of a group, and pauses the group after `most` failures in a row. When the pause is over, the
-- count begins anew. Returns whether the group has been paused.
CREATE OR REPLACE FUNCTION :"schema".:"countFailure"(task bigint, name text, failed boolean, most integer, channel text)
RETURNS boolean LANGUAGE plpgsql AS $function$
#variable_conflict use_variable
DECLARE
  place pg_catalog.int8 := pg_catalog.hashtextextended(name, 0);
  counted pg_catalog.int4;
  paused pg_catalog.bool := false;
BEGIN
  IF failed THEN
    INSERT INTO :"schema".:"failureTable" AS f (hash, failures) VALUES (place, 1)
    ON CONFLICT (hash) DO UPDATE SET failures = f.failures OPERATOR(pg_catalog.+) 1 RETURNING f.failures INTO counted;
    IF counted OPERATOR(pg_catalog.<) most THEN
      RETURN false;
    END IF;
    INSERT INTO :"schema".:"pauseTable" ("group", reason)
    SELECT name, pg_catalog.concat('suspended after ', CASE WHEN counted OPERATOR(pg_catalog.>) 1 THEN pg_catalog.concat(counted, ' failures in a row, the last') ELSE 'a failure,' END, ' that of task ', task)
    WHERE NOT EXISTS (SELECT FROM :"schema".:"pauseTable" AS p WHERE p."group" OPERATOR(pg_catalog.=) name);
    paused := FOUND;
    IF paused THEN
      PERFORM :"schema".:"suspended"(pg_catalog.jsonb_build_object('id', task, 'group', name, 'failures', counted), channel);
    END IF;
  END IF;
  DELETE FROM :"schema".:"failureTable" AS f WHERE f.hash OPERATOR(pg_catalog.=) place;
  RETURN paused;
END $function$;

COMMENT ON FUNCTION :"schema".:"countFailure"(bigint, text, boolean, integer, text) IS 'pg-task count failure';

-- == Functions that sessions call around each run ==

-- Last statement of a task's transaction. Returns null if the transaction has written nothing. Otherwise writes the
-- proof, and returns true if the task is still in TAKE or WORK, and false if the task itself has changed its state or
-- deleted its row. Fails, and thereby aborts the transaction, if another session has changed the state, deleted the row
-- or become the owner. UNLISTEN takes effect at commit: in `reset`, that would be the end of the next run. With
-- variable_conflict, unqualified names are parameters and variables even if the table has such a column.
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
    -- This commit need not wait for its WAL flush: the commit of the row's DONE comes later and covers it.
    PERFORM pg_catalog.set_config('synchronous_commit', 'off', true);
    RETURN true;
  END IF;
  -- The row has changed since the claim: find out whether the task itself changed it.
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

COMMENT ON FUNCTION :"schema".:"finish"(bigint, bigint, text, integer) IS 'pg-task finish';

-- Resets the session after a run, and returns when the reset began. Does the same as DISCARD ALL, but keeps cached
-- plans, which are not observable, so that functions need not be planned again. CLOSE needs EXECUTE, because PL/pgSQL
-- has a CLOSE statement of its own.
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

COMMENT ON FUNCTION :"schema".:"reset"() IS 'pg-task reset';

-- The same reset, at the beginning of a queued run's transaction, whose start time it returns. Takes the lock of the
-- queued run until the end of the transaction, and fails unless the manager holds the session's pipeline permit. A
-- rollback undoes the reset, so the caller then resets the session once more. Also fails if the read-only mode or the
-- isolation level, which can no longer be changed, differs from that of a new session: the previous task, RESET (up to
-- PostgreSQL 15) or the server's configuration may have changed it. `group` and `name` are null if they are those of
-- every new session. All checks are in a single expression, because PL/pgSQL sets up each one anew in each transaction.
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
  RAISE EXCEPTION 'run was recalled, or its transaction differs from that of a new session' USING ERRCODE = 'PGT02';
END $function$;

COMMENT ON FUNCTION :"schema".:"reset"(text, text, text, integer, integer) IS 'pg-task reset';

-- == Views ==

-- Each view reads a function, because a view on the table itself would prevent the owner from dropping the table or
-- changing a column's type. The function runs with the privileges of its caller. The casts are for adopted tables.
--
-- Being single SELECTs without settings, they are inlined, so that the conditions of a reader's query are pushed into
-- them, and names are looked up in the search_path of the reader.
CREATE OR REPLACE FUNCTION :"schema".:"statsRows"()
RETURNS TABLE (hour timestamptz, count bigint, failed bigint, total interval, mean interval, max interval, p95 interval)
LANGUAGE sql STABLE AS $function$
  SELECT r.hour, pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE r.failed), pg_catalog.sum(r.took),
    pg_catalog.avg(r.took), pg_catalog.max(r.took), pg_catalog.percentile_cont(0.95) WITHIN GROUP (ORDER BY r.took)
  FROM (
    SELECT pg_catalog.date_trunc('hour', t.stop::pg_catalog.timestamptz) AS hour, t.state::pg_catalog.text OPERATOR(pg_catalog.=) 'FAIL' AS failed,
      t.stop::pg_catalog.timestamptz OPERATOR(pg_catalog.-) t.start::pg_catalog.timestamptz AS took
    FROM :"schema".:"table" AS t
    WHERE t.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['DONE', 'FAIL']) AND t.stop IS NOT NULL
  ) AS r GROUP BY r.hour
$function$;

CREATE OR REPLACE FUNCTION :"schema".:"errorsRows"()
RETURNS TABLE (error text, count bigint, last_seen timestamptz, last_id bigint)
LANGUAGE sql STABLE AS $function$
  SELECT e.error, pg_catalog.count(*), pg_catalog.max(e.stop),
    (pg_catalog.array_agg(e.id ORDER BY e.stop DESC NULLS LAST, e.id DESC))[1]
  FROM (
    SELECT pg_catalog."left"(pg_catalog.split_part(t.error::pg_catalog.text, E'\n', 1), 1000) AS error,
      t.stop::pg_catalog.timestamptz AS stop, t.id::bigint AS id
    FROM :"schema".:"table" AS t WHERE t.error IS NOT NULL
  ) AS e GROUP BY e.error
$function$;

-- Running tasks are counted by application_name (`pg_task SCHEMA TABLE GROUP`), without reading finished rows. The
-- server truncates it to 63 bytes and shows bytes that are not printable ASCII as \xff (before PostgreSQL 16 as ?). The
-- names of waiting groups are converted in the same way. The planner expects NOT ready to be true in most rows,
-- although ready is null in most of them. Conditions on plan that it cannot estimate make it expect few rows. The
-- string literals do not depend on standard_conforming_strings.
CREATE OR REPLACE FUNCTION :"schema".:"groupsRows"()
RETURNS TABLE ("group" text, running bigint, waiting bigint, due bigint, oldest timestamptz, paused boolean)
LANGUAGE sql STABLE AS $function$
  WITH waits AS (
    SELECT w."group", pg_catalog.count(w.plan) AS waiting,
      pg_catalog.count(*) FILTER (WHERE w.plan OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()) AS due, pg_catalog.min(w.plan) AS oldest
    FROM (
      SELECT t."group"::pg_catalog.text AS "group", t.plan::pg_catalog.timestamptz AS plan FROM :"schema".:"table" AS t WHERE t.ready
      UNION ALL
      SELECT t."group"::pg_catalog.text, t.plan::pg_catalog.timestamptz FROM :"schema".:"table" AS t WHERE NOT t.ready AND t.ready IS FALSE
        AND t.plan OPERATOR(pg_catalog.>=) (SELECT '-infinity'::pg_catalog.timestamptz)
        AND t.plan OPERATOR(pg_catalog.<=) (SELECT 'infinity'::pg_catalog.timestamptz)
      UNION ALL
      SELECT p."group", NULL FROM :"schema".:"pauseTable" AS p WHERE p."group" IS NOT NULL
    ) AS w GROUP BY w."group"
  ), called AS (
    SELECT w.*, pg_catalog.concat('pg_task ', :'schema', ' ', :'table', ' ', w."group") AS whole, 'group' AS kind FROM waits AS w
    UNION ALL SELECT NULL, NULL, NULL, NULL, pg_catalog.concat('pg_task ', :'schema', ' ', :'table', ' '), 'prefix'
    UNION ALL SELECT NULL, NULL, NULL, NULL, pg_catalog.concat('pg_task ', :'schema', ' ', :'table'), 'idle'
  ), shown AS MATERIALIZED (
    SELECT c.*, pg_catalog."left"(CASE WHEN c.whole OPERATOR(pg_catalog.~) '^[ -~]*$' THEN c.whole ELSE (
      SELECT pg_catalog.string_agg(CASE WHEN b.byte OPERATOR(pg_catalog.>=) 32 AND b.byte OPERATOR(pg_catalog.<=) 126 THEN pg_catalog.chr(b.byte)
        WHEN pg_catalog.current_setting('server_version_num')::integer OPERATOR(pg_catalog.<) 160000 THEN '?'
        ELSE pg_catalog.concat(E'\\x', pg_catalog.lpad(pg_catalog.to_hex(b.byte), 2, '0')) END, '' ORDER BY b.place)
      FROM (
        SELECT n.place, pg_catalog.get_byte(pg_catalog.convert_to(c.whole, pg_catalog.getdatabaseencoding()), n.place) AS byte
        -- The server truncates a name at a character boundary before it replaces bytes.
        FROM pg_catalog.generate_series(0, (SELECT pg_catalog.max(pg_catalog.octet_length(pg_catalog."left"(c.whole, m.length)))
          FROM pg_catalog.generate_series(0, 63) AS m(length)
          WHERE pg_catalog.octet_length(pg_catalog."left"(c.whole, m.length)) OPERATOR(pg_catalog.<=) 63) OPERATOR(pg_catalog.-) 1) AS n(place)
      ) AS b) END, 63) AS name
    FROM called AS c
  ), runs AS MATERIALIZED (
    SELECT a.application_name AS name, pg_catalog.count(*) AS running,
      pg_catalog.substr(a.application_name, pg_catalog.length(p.name) OPERATOR(pg_catalog.+) 1) AS "group"
    FROM pg_catalog.pg_stat_activity AS a, shown AS p, shown AS i
    WHERE p.kind OPERATOR(pg_catalog.=) 'prefix' AND i.kind OPERATOR(pg_catalog.=) 'idle' AND a.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
      AND pg_catalog.starts_with(a.application_name, p.name) AND a.application_name OPERATOR(pg_catalog.<>) i.name
    GROUP BY a.application_name, p.name
  )
  SELECT g."group", coalesce(r.running, 0), g.waiting, g.due, g.oldest,
    EXISTS (SELECT FROM :"schema".:"pauseTable" AS p WHERE p."group" IS NULL OR p."group" OPERATOR(pg_catalog.=) g."group")
  FROM (
    -- Of several groups with the same truncated name, the one with the most due tasks gets the count.
    SELECT s."group", s.waiting, s.due, s.oldest,
      CASE WHEN pg_catalog.row_number() OVER (PARTITION BY s.name ORDER BY s.due DESC, s."group") OPERATOR(pg_catalog.=) 1 THEN s.name END AS name
    FROM shown AS s WHERE s.kind OPERATOR(pg_catalog.=) 'group'
    UNION ALL
    SELECT r."group", 0, 0, NULL, r.name FROM runs AS r
    WHERE NOT EXISTS (SELECT FROM shown AS s WHERE s.kind OPERATOR(pg_catalog.=) 'group' AND s.name OPERATOR(pg_catalog.=) r.name)
  ) AS g LEFT JOIN runs AS r ON r.name OPERATOR(pg_catalog.=) g.name
$function$;

COMMENT ON FUNCTION :"schema".:"statsRows"() IS 'pg-task rows of a view';
COMMENT ON FUNCTION :"schema".:"errorsRows"() IS 'pg-task rows of a view';
COMMENT ON FUNCTION :"schema".:"groupsRows"() IS 'pg-task rows of a view';

GRANT EXECUTE ON FUNCTION :"schema".:"statsRows"(), :"schema".:"errorsRows"(), :"schema".:"groupsRows"() TO PUBLIC;

-- If a user's table, type or view has one of these names, it stays and the view is not created.
DO $function$
DECLARE
  view record;
  description text[];
BEGIN
  FOR view IN SELECT * FROM (VALUES
    (:'statsView', :'statsRows', 'pg-task view: finished runs by hour', ARRAY[
      ['hour', 'Hour of the stop'],
      ['count', 'Runs that ended as DONE or FAIL'],
      ['failed', 'Runs that ended as FAIL'],
      ['total', 'Total run time'],
      ['mean', 'Mean run time'],
      ['max', 'Longest run time'],
      ['p95', 'Run time that 95 percent of the runs did not exceed']]),
    (:'errorsView', :'errorsRows', 'pg-task view: errors by their first line', ARRAY[
      ['error', 'First line, up to 1000 characters'],
      ['count', 'Tasks with this error'],
      ['last_seen', 'Latest stop of these tasks'],
      ['last_id', 'Id of the task that ended last']]),
    (:'groupsView', :'groupsRows', 'pg-task view: groups in which tasks run, wait or are paused', ARRAY[
      ['group', 'Group name, of any remote'],
      ['running', 'Running tasks'],
      ['waiting', 'Tasks in PLAN'],
      ['due', 'Tasks in PLAN whose time has come'],
      ['oldest', 'Earliest plan of a task in PLAN'],
      ['paused', 'Whether it is paused']])
  ) AS v(name, source, comment, columns)
  LOOP
    IF EXISTS (SELECT FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = pg_catalog.to_regnamespace(pg_catalog.quote_ident(:'schema')) AND c.relname = view.name
          AND (c.relkind <> 'v' OR pg_catalog.concat(pg_catalog.obj_description(c.oid, 'pg_class')) NOT LIKE 'pg-task view%'))
      OR EXISTS (SELECT FROM pg_catalog.pg_type AS t WHERE t.typrelid = 0 AND t.typname = view.name
        AND t.typnamespace = pg_catalog.to_regnamespace(pg_catalog.quote_ident(:'schema'))) THEN
      CONTINUE;
    END IF;
    EXECUTE pg_catalog.format('CREATE OR REPLACE VIEW %I.%I AS SELECT * FROM %I.%I()', :'schema', view.name, :'schema', view.source);
    EXECUTE pg_catalog.format('COMMENT ON VIEW %I.%I IS %L', :'schema', view.name, view.comment);
    IF pg_catalog.current_setting('server_version_num')::integer >= 150000 THEN
      EXECUTE pg_catalog.format('ALTER VIEW %I.%I SET (security_invoker = true)', :'schema', view.name);
    END IF;
    FOREACH description SLICE 1 IN ARRAY view.columns LOOP
      EXECUTE pg_catalog.format('COMMENT ON COLUMN %I.%I.%I IS %L', :'schema', view.name, description[1], description[2]);
    END LOOP;
  END LOOP;
END $function$;

-- == Home ==

-- Copied together with the tasks, so that pg-task knows a copy, and does not run what the original runs (home.ts).
CREATE TABLE IF NOT EXISTS :"schema".:"homeTable" (
  id uuid PRIMARY KEY,
  system bigint,
  database oid NOT NULL,
  "table" oid NOT NULL,
  version integer NOT NULL,
  cluster text NOT NULL,
  label text,
  since timestamptz NOT NULL DEFAULT statement_timestamp()
);

-- Removes rows left over from a dropped task table.
TRUNCATE :"schema".:"homeTable";

COMMENT ON TABLE :"schema".:"homeTable" IS 'For pg-task''s own use: where the task table is at home; a copy elsewhere starts nothing';
COMMENT ON COLUMN :"schema".:"homeTable".system IS 'System identifier of the server, null if unknown';
COMMENT ON COLUMN :"schema".:"homeTable".database IS 'Oid of the database';
COMMENT ON COLUMN :"schema".:"homeTable"."table" IS 'Oid of the task table';
COMMENT ON COLUMN :"schema".:"homeTable".version IS 'Major version of the server';
COMMENT ON COLUMN :"schema".:"homeTable".cluster IS 'pg_conf.name';
COMMENT ON COLUMN :"schema".:"homeTable".label IS 'pg_task.home, null if not set';
COMMENT ON COLUMN :"schema".:"homeTable".since IS 'Since when';

-- The table may have become a copy, because rows of another table were loaded. Also fires in a subscriber.
CREATE OR REPLACE FUNCTION :"schema".:"homeChanged"() RETURNS trigger LANGUAGE plpgsql AS $function$ BEGIN
  PERFORM pg_catalog.pg_notify(pg_catalog.concat('pg_task_', TG_RELID), 'home');
  RETURN NULL;
END $function$;

COMMENT ON FUNCTION :"schema".:"homeChanged"() IS 'pg-task home';

DROP TRIGGER IF EXISTS :"homeChanged" ON :"schema".:"homeTable";
CREATE TRIGGER :"homeChanged" AFTER INSERT OR UPDATE ON :"schema".:"homeTable" FOR EACH ROW
  EXECUTE FUNCTION :"schema".:"homeChanged"();
ALTER TABLE :"schema".:"homeTable" ENABLE ALWAYS TRIGGER :"homeChanged";

-- == Webhooks ==

-- What each webhook of the configuration is told, and whether it answers. Its URL and secret are only there. The outbox
-- has the ends that it has not accepted yet. `error` is the first line of the task's error.
CREATE TABLE IF NOT EXISTS :"schema".:"webhookTable" (
  name text PRIMARY KEY,
  states text[] NOT NULL,
  groups text[],
  failures integer NOT NULL DEFAULT 0,
  next timestamptz,
  error text,
  failed timestamptz
);

CREATE TABLE IF NOT EXISTS :"schema".:"outboxTable" (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  webhook text NOT NULL,
  task bigint NOT NULL,
  state text NOT NULL,
  "group" text NOT NULL,
  key text,
  plan timestamptz,
  start timestamptz,
  stop timestamptz NOT NULL,
  error text,
  created timestamptz NOT NULL DEFAULT clock_timestamp(),
  tries integer NOT NULL DEFAULT 0,
  next timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX IF NOT EXISTS :"outboxIndex" ON :"schema".:"outboxTable" (webhook, next);

-- Removes rows left over from a dropped task table.
TRUNCATE :"schema".:"webhookTable", :"schema".:"outboxTable";

COMMENT ON TABLE :"schema".:"webhookTable" IS 'For pg-task''s own use: which ends of tasks each webhook is told, and whether it answers';
COMMENT ON TABLE :"schema".:"outboxTable" IS 'For pg-task''s own use: ends of tasks that webhooks have not accepted yet';

-- Only a table with webhooks has the triggers that call it (src/manager/schema/webhooks.ts). Whoever writes the end of a
-- task may not write the outbox, so the function runs as its owner. The manager deletes the row of a task that is DONE
-- without output. If the tables have been moved, pg-task is about to replace the function, and writes must not fail.
CREATE OR REPLACE FUNCTION :"schema".:"webhookFunction"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $function$
#variable_conflict use_variable
DECLARE
  task record := OLD;
  outcome pg_catalog.text := 'DONE';
BEGIN
  IF pg_catalog.to_regclass(:'qualifiedOutbox') IS NULL THEN
    RETURN NULL;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE'::pg_catalog.text THEN
    task := NEW;
    outcome := NEW.state::pg_catalog.text;
  END IF;
  INSERT INTO :"schema".:"outboxTable" (webhook, task, state, "group", key, plan, start, stop, error)
  SELECT w.name, task.id, outcome, task."group", task.key, coalesce(task.due, task.plan), task.start,
    coalesce(task.stop, pg_catalog.clock_timestamp()),
    pg_catalog."left"(pg_catalog.split_part(task.error::pg_catalog.text, E'\n', 1), 1000)
  FROM :"schema".:"webhookTable" AS w
  WHERE outcome OPERATOR(pg_catalog.=) ANY (w.states)
    AND (w.groups IS NULL OR task."group"::pg_catalog.text OPERATOR(pg_catalog.=) ANY (w.groups));
  RETURN NULL;
END $function$;

COMMENT ON FUNCTION :"schema".:"webhookFunction"() IS 'pg-task webhooks';

REVOKE ALL ON FUNCTION :"schema".:"webhookFunction"() FROM PUBLIC;

-- == What earlier versions of the table have ==

-- The first version had nine checks instead of one. Adopted tables keep the checks that they have: the positions of the
-- columns tell whether pg-task created the table. Existing rows have passed the nine checks, so they are not scanned
-- again.
DO $function$
DECLARE
  task pg_catalog.regclass := :'qualified';
  drops text;
  count bigint;
BEGIN
  SELECT pg_catalog.count(*), pg_catalog.string_agg(pg_catalog.format('DROP CONSTRAINT %I', c.conname), ', ')
  INTO count, drops
  FROM (VALUES
    (7, pg_catalog.format('(active > %L::interval)', interval '0')),
    (8, pg_catalog.format('(live >= %L::interval)', interval '0')),
    (9, pg_catalog.format('(repeat >= %L::interval)', interval '0')),
    (10, pg_catalog.format('(timeout >= %L::interval)', interval '0')),
    (11, '(count >= 0)'),
    (24, pg_catalog.format('(delimiter <= %L::%I)', E'\x7f', 'char')),
    (25, pg_catalog.format('(escape <= %L::%I)', E'\x7f', 'char')),
    (26, pg_catalog.format('(quote <= %L::%I)', E'\x7f', 'char')),
    (35, pg_catalog.format('(keep >= %L::interval)', interval '0'))
  ) AS w(position, expression)
  JOIN pg_catalog.pg_constraint AS c ON c.conrelid = task AND c.contype = 'c' AND c.conkey = ARRAY[w.position::smallint]
    AND pg_catalog.pg_get_expr(c.conbin, c.conrelid) = w.expression;
  IF count = 9 THEN
    EXECUTE pg_catalog.format('ALTER TABLE %s %s, ADD CHECK (active > interval %L AND least(live, repeat, timeout, keep) >= interval %L '
      'AND count >= 0 AND greatest(delimiter, escape, quote) <= %L) %s',
      task, drops, '0', '0', E'\x7f', CASE WHEN pg_catalog.pg_relation_size(task) > 0 THEN 'NOT VALID' END);
  END IF;
END $function$;

-- Replaces two triggers of the first version: the one that wakes the manager had a condition, and that of the one that
-- sets `ready` did not compare `state` as an enum value, which is cheaper. Their comments may be a record of pg-task
-- (src/manager/schema/planDefault.ts), so they are kept.
DO $function$
DECLARE
  task pg_catalog.regclass := :'qualified';
  replaced record;
BEGIN
  FOR replaced IN
    SELECT t.tgname AS name, pg_catalog.obj_description(t.oid, 'pg_trigger') AS comment
    FROM pg_catalog.pg_trigger AS t WHERE t.tgrelid = task
      AND (t.tgname = :'wakeUp' AND pg_catalog.strpos(pg_catalog.pg_get_triggerdef(t.oid), 'pgtask.manager') > 0 OR t.tgname = :'readyInsertTrigger'
        AND EXISTS (SELECT FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS y ON y.oid = a.atttypid
          WHERE a.attrelid = task AND a.attname = 'state' AND y.typtype = 'e')
        AND pg_catalog.strpos(pg_catalog.pg_get_triggerdef(t.oid), '(new.state)::text <> ''PLAN''::text') > 0)
  LOOP
    EXECUTE pg_catalog.format('DROP TRIGGER %I ON %s', replaced.name, task);
    IF replaced.name = :'wakeUp' THEN
      CREATE TRIGGER :"wakeUp" AFTER INSERT OR DELETE OR TRUNCATE OR UPDATE OF plan, state ON :"schema".:"table" FOR EACH STATEMENT
        EXECUTE FUNCTION :"schema".:"wakeUp"();
    ELSE
      CREATE TRIGGER :"readyInsertTrigger" BEFORE INSERT ON :"schema".:"table" FOR EACH ROW
        WHEN (NEW.plan > statement_timestamp() OR NEW.state OPERATOR(pg_catalog.<>) 'PLAN' OR NEW.owner IS NOT NULL OR NEW.ready IS NOT TRUE)
        EXECUTE FUNCTION :"schema".:"readyFunction"();
    END IF;
    EXECUTE pg_catalog.format('COMMENT ON TRIGGER %I ON %s IS %L', replaced.name, task, replaced.comment);
  END LOOP;
END $function$;
