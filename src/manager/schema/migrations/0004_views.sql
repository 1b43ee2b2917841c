-- What the tasks come to, for everybody who may read the table.

-- Each view reads a function, since a view on the table itself would forbid its owner to drop it or to
-- change a column's type. A function runs with the rights of who asks, row-level security included, and
-- as a single SELECT in SQL it becomes part of the query that asks. The casts are for adopted tables.
CREATE OR REPLACE FUNCTION :"schema".:"statsRows"()
RETURNS TABLE (hour timestamptz, count bigint, failed bigint, total interval, mean interval, max interval, p95 interval)
LANGUAGE sql STABLE AS $function$
  SELECT r.hour, pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE r.failed), pg_catalog.sum(r.took),
    pg_catalog.avg(r.took), pg_catalog.max(r.took), pg_catalog.percentile_cont(0.95) WITHIN GROUP (ORDER BY r.took)
  FROM (
    SELECT pg_catalog.date_trunc('hour', t.stop::timestamptz) AS hour, t.state::text = 'FAIL' AS failed,
      t.stop::timestamptz - t.start::timestamptz AS took
    FROM :"schema".:"table" AS t WHERE t.state::text IN ('DONE', 'FAIL') AND t.stop IS NOT NULL
  ) AS r GROUP BY r.hour
$function$;

CREATE OR REPLACE FUNCTION :"schema".:"errorsRows"()
RETURNS TABLE (error text, count bigint, last_seen timestamptz, last_id bigint)
LANGUAGE sql STABLE AS $function$
  SELECT e.error, pg_catalog.count(*), pg_catalog.max(e.stop), pg_catalog.max(e.id)
  FROM (
    SELECT pg_catalog."left"(pg_catalog.split_part(t.error::text, E'\n', 1), 1000) AS error,
      t.stop::timestamptz AS stop, t.id::bigint AS id
    FROM :"schema".:"table" AS t WHERE t.error IS NOT NULL
  ) AS e GROUP BY e.error
$function$;

-- A session that has several tasks of a group counts once: the others wait in it. The index is found by
-- NOT ready; that few rows fit it, since most are null, the planner sees by IS FALSE.
CREATE OR REPLACE FUNCTION :"schema".:"groupsRows"()
RETURNS TABLE ("group" text, running bigint, waiting bigint, due bigint, oldest timestamptz, paused boolean)
LANGUAGE sql STABLE AS $function$
  SELECT w."group", pg_catalog.count(DISTINCT w.owner), pg_catalog.count(w.plan),
    pg_catalog.count(*) FILTER (WHERE w.plan <= pg_catalog.statement_timestamp()), pg_catalog.min(w.plan),
    EXISTS (SELECT FROM :"schema".:"pauseTable" AS p WHERE p."group" IS NULL OR p."group" = w."group")
  FROM (
    SELECT t."group"::text AS "group", NULL::text AS owner, t.plan::timestamptz AS plan
    FROM :"schema".:"table" AS t WHERE t.ready
    UNION ALL
    SELECT t."group"::text, NULL, t.plan::timestamptz FROM :"schema".:"table" AS t WHERE NOT t.ready AND t.ready IS FALSE
    UNION ALL
    SELECT t."group"::text, t.owner::text, NULL FROM :"schema".:"table" AS t WHERE t.owner IS NOT NULL
    UNION ALL
    SELECT p."group", NULL, NULL FROM :"schema".:"pauseTable" AS p WHERE p."group" IS NOT NULL
  ) AS w GROUP BY w."group"
$function$;

COMMENT ON FUNCTION :"schema".:"statsRows"() IS 'pg-task rows of a view';
COMMENT ON FUNCTION :"schema".:"errorsRows"() IS 'pg-task rows of a view';
COMMENT ON FUNCTION :"schema".:"groupsRows"() IS 'pg-task rows of a view';

-- A table, type or view of somebody else's may have one of these names: it stays, and this view is not made.
DO $function$
DECLARE
  view record;
BEGIN
  FOR view IN SELECT * FROM (VALUES
    (:'statsView', :'statsRows', 'pg-task view: runs that ended, by the hour',
      'hour', 'Of the stop', 'count', 'Runs that ended as DONE or FAIL', 'failed', 'Those that ended as FAIL',
      'total', 'Run time of all', 'mean', 'Mean run time', 'max', 'Longest run time',
      'p95', 'Run time that 95 percent of the runs did not exceed'),
    (:'errorsView', :'errorsRows', 'pg-task view: errors by their first line',
      'error', 'First line, 1000 characters of it at most', 'count', 'Tasks that have it', 'last_seen', 'Latest stop of those',
      'last_id', 'Largest id of those', NULL, NULL, NULL, NULL, NULL, NULL),
    (:'groupsView', :'groupsRows', 'pg-task view: groups in which tasks run, wait or are paused',
      'group', 'Group name, whatever the remote', 'running', 'Tasks that run', 'waiting', 'Tasks in PLAN',
      'due', 'Those whose plan has come', 'oldest', 'Earliest plan of a task in PLAN',
      'paused', 'Whether its tasks do not start', NULL, NULL)
  ) AS v(name, source, comment, c1, t1, c2, t2, c3, t3, c4, t4, c5, t5, c6, t6, c7, t7)
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
    EXECUTE (SELECT pg_catalog.string_agg(pg_catalog.format('COMMENT ON COLUMN %I.%I.%I IS %L', :'schema', view.name, c.name, c.text), ';')
      FROM (VALUES (view.c1, view.t1), (view.c2, view.t2), (view.c3, view.t3), (view.c4, view.t4), (view.c5, view.t5),
        (view.c6, view.t6), (view.c7, view.t7)) AS c(name, text) WHERE c.name IS NOT NULL);
  END LOOP;
END $function$;
