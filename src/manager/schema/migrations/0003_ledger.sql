-- Proof of what was committed, and wake-ups that hold up no producer.

-- A task's effect and its line in a ledger are one transaction. Two ledgers in turn, so that one can be
-- emptied while runs write to the other; they are read only when a session died, and then as a whole:
-- no index, and nothing for autovacuum to do. Left over from a table that was dropped, they may be
-- there; those of somebody else fail at the line after.
CREATE TABLE IF NOT EXISTS :"schema".:"ledger1" (id bigint NOT NULL, take bigint NOT NULL, running boolean NOT NULL)
  WITH (autovacuum_enabled = off);
CREATE TABLE IF NOT EXISTS :"schema".:"ledger2" (id bigint NOT NULL, take bigint NOT NULL, running boolean NOT NULL)
  WITH (autovacuum_enabled = off);
SELECT id, take, running FROM :"schema".:"ledger1" LIMIT 0;
SELECT id, take, running FROM :"schema".:"ledger2" LIMIT 0;
TRUNCATE :"schema".:"ledger1", :"schema".:"ledger2";

COMMENT ON TABLE :"schema".:"ledger1" IS 'For pg-task''s own use: runs whose effect was committed';
COMMENT ON TABLE :"schema".:"ledger2" IS 'For pg-task''s own use: runs whose effect was committed';

-- Called at the end of a task's transaction when that has written anything: enters the run into a
-- ledger. True when its row still says that it runs; false when the task itself has changed or deleted
-- that. When somebody else has stopped or deleted it, or it is another session's by now, the whole
-- transaction fails. A name or an operator that were not qualified would be the task's to choose.
CREATE OR REPLACE FUNCTION :"schema".:"finish"(task bigint, taken bigint, holder text, ledger integer)
RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
  me pg_catalog.text := pg_catalog.concat(:'qualified'::pg_catalog.regclass::pg_catalog.oid, ' ', task);
  found_state pg_catalog.text;
  found_owner pg_catalog.text;
  own pg_catalog.bool;
  runs pg_catalog.bool := false;
BEGIN
  SELECT t.state::pg_catalog.text, t.owner
  INTO found_state, found_owner FROM :"schema".:"table" AS t WHERE t.id OPERATOR(pg_catalog.=) task;
  IF NOT FOUND THEN
    own := pg_catalog.current_setting('pgtask.deleted', true) OPERATOR(pg_catalog.=) me;
  ELSIF found_state OPERATOR(pg_catalog.=) 'STOP'::pg_catalog.text THEN
    own := found_owner OPERATOR(pg_catalog.=) holder
      AND pg_catalog.current_setting('pgtask.stopped', true) OPERATOR(pg_catalog.=) me;
  ELSE
    own := found_owner OPERATOR(pg_catalog.=) holder;
    runs := found_state OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK']::pg_catalog.text[]);
  END IF;
  IF own IS NOT TRUE THEN
    RAISE EXCEPTION 'task was stopped or deleted while it ran' USING ERRCODE = 'PGT01';
  END IF;
  IF ledger OPERATOR(pg_catalog.=) 1 THEN
    INSERT INTO :"schema".:"ledger1" VALUES (task, taken, runs);
  ELSE
    INSERT INTO :"schema".:"ledger2" VALUES (task, taken, runs);
  END IF;
  RETURN runs;
END $function$;

COMMENT ON FUNCTION :"schema".:"finish"(bigint, bigint, text, integer) IS 'pg-task finish';

-- As before, and it remembers for `finish` that a task stopped itself; a savepoint that is rolled back
-- takes that along.
CREATE OR REPLACE FUNCTION :"schema".:"readyFunction"() RETURNS trigger LANGUAGE plpgsql AS $function$ BEGIN
  IF NEW.state::pg_catalog.text OPERATOR(pg_catalog.=) 'PLAN'::pg_catalog.text AND NEW.owner IS NULL THEN
    NEW.ready := NEW.plan OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp();
  ELSE
    NEW.ready := NULL;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE'::pg_catalog.text AND NEW.state::pg_catalog.text OPERATOR(pg_catalog.=) 'STOP'::pg_catalog.text THEN
    IF OLD.state::pg_catalog.text OPERATOR(pg_catalog.<>) 'STOP'::pg_catalog.text
      AND NEW.id::pg_catalog.text OPERATOR(pg_catalog.=) pg_catalog.current_setting('pg_task.id', true) THEN
      PERFORM pg_catalog.set_config('pgtask.stopped', pg_catalog.concat(:'qualified'::pg_catalog.regclass::pg_catalog.oid, ' ', NEW.id), true);
    END IF;
  END IF;
  RETURN NEW;
END $function$;

-- NOTIFY makes transactions commit one after another. While the manager looks by itself again and
-- again, which it says by holding a lock, nobody has to tell it. For `finish` this remembers that a
-- task deleted its own row.
CREATE OR REPLACE FUNCTION :"schema".:"wakeUp"() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
  root pg_catalog.oid := coalesce(pg_catalog.pg_partition_root(TG_RELID)::pg_catalog.oid, TG_RELID);
  lock pg_catalog.int4 := root::pg_catalog.int8::pg_catalog.bit(32)::pg_catalog.int4;
  task pg_catalog.text := pg_catalog.current_setting('pg_task.id', true);
BEGIN
  IF (TG_LEVEL OPERATOR(pg_catalog.=) 'ROW'::pg_catalog.text OR TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE'::pg_catalog.text)
    AND root OPERATOR(pg_catalog.=) :'qualified'::pg_catalog.regclass::pg_catalog.oid THEN
    PERFORM pg_catalog.set_config('pgtask.deleted', pg_catalog.concat(root, ' ', task), true);
  END IF;
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'ROW'::pg_catalog.text THEN
    RETURN NULL;
  END IF;
  IF pg_catalog.pg_try_advisory_lock_shared(:'busyClass', lock) THEN
    PERFORM pg_catalog.pg_advisory_unlock_shared(:'busyClass', lock);
    PERFORM pg_catalog.pg_notify(pg_catalog.concat('pg_task_', root), '');
  END IF;
  RETURN NULL;
END $function$;

COMMENT ON FUNCTION :"schema".:"wakeUp"() IS 'pg-task wake-up';

-- Of a partitioned table it is one of each partition as well, of those to come too.
DROP TRIGGER IF EXISTS :"ownDeleteTrigger" ON :"schema".:"table";
CREATE TRIGGER :"ownDeleteTrigger" AFTER DELETE ON :"schema".:"table" FOR EACH ROW
  WHEN (OLD.id::text = current_setting('pg_task.id', true)) EXECUTE FUNCTION :"schema".:"wakeUp"();
