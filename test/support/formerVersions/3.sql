-- These functions do the same as in earlier migrations, but qualify every operator and type with its schema. The one that
-- wakes the manager can also be kept from sending a notification.

-- == Default of plan ==

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

-- == Wake-up ==

-- Tells the task table from the pause table by the name of the trigger. A function that names the table makes every INSERT
-- fail once the table or its schema has been renamed.
--
-- A transaction that has sent a notification cannot be prepared (PREPARE TRANSACTION). With `pg_task.notify` off, none is
-- sent, and the manager finds the rows when it next looks at the table.
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

-- == Views ==

-- The functions of the views are inlined, so their names are looked up in the search_path of whoever reads the view. A
-- setting of the functions would prevent this, and the server could then no longer push the conditions of a reader's
-- query into them.
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
  SELECT e.error, pg_catalog.count(*), pg_catalog.max(e.stop), pg_catalog.max(e.id)
  FROM (
    SELECT pg_catalog."left"(pg_catalog.split_part(t.error::pg_catalog.text, E'\n', 1), 1000) AS error,
      t.stop::pg_catalog.timestamptz AS stop, t.id::bigint AS id
    FROM :"schema".:"table" AS t WHERE t.error IS NOT NULL
  ) AS e GROUP BY e.error
$function$;

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

-- == Replication ==

-- With a publication FOR ALL TABLES, the server refuses UPDATE and DELETE in a table that has neither a primary key nor
-- another replica identity, and some tools copy only tables that have one. A group of the pause table can be null, so the
-- key is a number. The ledgers get no index, which each run would have to write.
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

ALTER TABLE :"schema".:"ledger1" REPLICA IDENTITY FULL;

ALTER TABLE :"schema".:"ledger2" REPLICA IDENTITY FULL;

-- == Home ==

-- Where the table is at home (src/manager/schema/home.ts). The row is copied together with the tasks, so that pg-task
-- knows a copy, and does not run what the original runs.
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
