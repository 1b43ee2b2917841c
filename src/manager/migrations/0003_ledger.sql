-- Proof of what was committed: a task's effect and its line in a ledger are one transaction.

-- Two of them in turn, so that one can be emptied while runs write to the other. They are read only
-- when a session died, and then as a whole: no index. Left over from a table that was dropped, they
-- may be there; those of somebody else fail at the line after.
CREATE TABLE IF NOT EXISTS :"schema".:"ledger1" (id bigint NOT NULL, take bigint NOT NULL);
CREATE TABLE IF NOT EXISTS :"schema".:"ledger2" (id bigint NOT NULL, take bigint NOT NULL);
SELECT id, take FROM :"schema".:"ledger1" LIMIT 0;
SELECT id, take FROM :"schema".:"ledger2" LIMIT 0;
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
  found_state pg_catalog.text;
  found_owner pg_catalog.text;
  writer pg_catalog.int8;
  current pg_catalog.int8;
BEGIN
  IF ledger OPERATOR(pg_catalog.=) 1 THEN
    INSERT INTO :"schema".:"ledger1" VALUES (task, taken);
  ELSE
    INSERT INTO :"schema".:"ledger2" VALUES (task, taken);
  END IF;
  SELECT t.state::pg_catalog.text, t.owner, t.xmin::pg_catalog.text::pg_catalog.int8
  INTO found_state, found_owner, writer FROM :"schema".:"table" AS t WHERE t.id OPERATOR(pg_catalog.=) task;
  IF NOT FOUND THEN
    IF pg_catalog.current_setting('pgtask.deleted', true)
      OPERATOR(pg_catalog.=) pg_catalog.concat(:'qualified'::pg_catalog.regclass::pg_catalog.oid, ' ', task) THEN
      RETURN false;
    END IF;
  ELSIF found_owner OPERATOR(pg_catalog.=) holder AND found_state OPERATOR(pg_catalog.<>) 'STOP'::pg_catalog.text THEN
    RETURN found_state OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK']::pg_catalog.text[]);
  ELSE
    -- The row as the task itself left it, in this transaction or a part of it? xmin is a transaction's
    -- number without its epoch, which is at most half the circle away from ours.
    current := pg_catalog.txid_current();
    writer := current OPERATOR(pg_catalog.+) ((writer OPERATOR(pg_catalog.-) (current OPERATOR(pg_catalog.&) 4294967295)
      OPERATOR(pg_catalog.+) 6442450944) OPERATOR(pg_catalog.&) 4294967295) OPERATOR(pg_catalog.-) 2147483648;
    IF pg_catalog.txid_status(writer) OPERATOR(pg_catalog.=) 'in progress'::pg_catalog.text THEN
      RETURN false;
    END IF;
  END IF;
  RAISE EXCEPTION 'task was stopped or deleted while it ran' USING ERRCODE = 'PGT01';
END $function$;

COMMENT ON FUNCTION :"schema".:"finish"(bigint, bigint, text, integer) IS 'pg-task finish';

-- As before, and it remembers for `finish` when a task deletes its own row.
CREATE OR REPLACE FUNCTION :"schema".:"wakeUp"() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
  root pg_catalog.oid := coalesce(pg_catalog.pg_partition_root(TG_RELID)::pg_catalog.oid, TG_RELID);
  task pg_catalog.text := pg_catalog.current_setting('pg_task.id', true);
BEGIN
  PERFORM pg_catalog.pg_notify(pg_catalog.concat('pg_task_', root), '');
  IF TG_OP OPERATOR(pg_catalog.=) ANY (ARRAY['DELETE', 'TRUNCATE']::pg_catalog.text[]) AND task OPERATOR(pg_catalog.~) '^[0-9]{1,18}$'::pg_catalog.text
    AND root OPERATOR(pg_catalog.=) :'qualified'::pg_catalog.regclass::pg_catalog.oid THEN
    IF NOT EXISTS (SELECT FROM :"schema".:"table" AS t WHERE t.id OPERATOR(pg_catalog.=) task::pg_catalog.int8) THEN
      PERFORM pg_catalog.set_config('pgtask.deleted', pg_catalog.concat(root, ' ', task), true);
    END IF;
  END IF;
  RETURN NULL;
END $function$;

COMMENT ON FUNCTION :"schema".:"wakeUp"() IS 'pg-task wake-up';
