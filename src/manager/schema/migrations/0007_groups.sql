-- What runs in each group, without a look at the rows that ended.

-- Sessions tell it by their names: `pg_task SCHEMA TABLE GROUP`. The server cuts a name after 63 bytes and
-- shows each byte that is not printable ASCII as \xff (before 16 as ?): that is done here to the groups in
-- which something waits, so that their whole names are found. What waits is found by the queue's indexes.
-- The planner takes NOT ready to be true of most rows, though most are null: bounds that it does not know
-- make it expect few.
CREATE OR REPLACE FUNCTION :"schema".:"groupsRows"()
RETURNS TABLE ("group" text, running bigint, waiting bigint, due bigint, oldest timestamptz, paused boolean)
LANGUAGE sql STABLE AS $function$
  WITH waits AS (
    SELECT w."group", pg_catalog.count(w.plan) AS waiting,
      pg_catalog.count(*) FILTER (WHERE w.plan <= pg_catalog.statement_timestamp()) AS due, pg_catalog.min(w.plan) AS oldest
    FROM (
      SELECT t."group"::text AS "group", t.plan::timestamptz AS plan FROM :"schema".:"table" AS t WHERE t.ready
      UNION ALL
      SELECT t."group"::text, t.plan::timestamptz FROM :"schema".:"table" AS t WHERE NOT t.ready AND t.ready IS FALSE
        AND t.plan >= (SELECT '-infinity'::timestamptz) AND t.plan <= (SELECT 'infinity'::timestamptz)
      UNION ALL
      SELECT p."group", NULL FROM :"schema".:"pauseTable" AS p WHERE p."group" IS NOT NULL
    ) AS w GROUP BY w."group"
  ), called AS (
    SELECT w.*, pg_catalog.concat('pg_task ', :'schema', ' ', :'table', ' ', w."group") AS whole, 'group' AS kind FROM waits AS w
    UNION ALL SELECT NULL, NULL, NULL, NULL, pg_catalog.concat('pg_task ', :'schema', ' ', :'table', ' '), 'prefix'
    UNION ALL SELECT NULL, NULL, NULL, NULL, pg_catalog.concat('pg_task ', :'schema', ' ', :'table'), 'idle'
  ), shown AS MATERIALIZED (
    SELECT c.*, pg_catalog."left"(CASE WHEN c.whole ~ '^[ -~]*$' THEN c.whole ELSE (
      SELECT pg_catalog.string_agg(CASE WHEN b.byte BETWEEN 32 AND 126 THEN pg_catalog.chr(b.byte)
        WHEN pg_catalog.current_setting('server_version_num')::integer < 160000 THEN '?'
        ELSE pg_catalog.concat('\x', pg_catalog.lpad(pg_catalog.to_hex(b.byte), 2, '0')) END, '' ORDER BY b.place)
      FROM (
        SELECT place, pg_catalog.get_byte(pg_catalog.convert_to(c.whole, pg_catalog.getdatabaseencoding()), place) AS byte
        FROM pg_catalog.generate_series(0, least(pg_catalog.octet_length(c.whole), 63) - 1) AS place
      ) AS b) END, 63) AS name
    FROM called AS c
  ), runs AS MATERIALIZED (
    SELECT a.application_name AS name, pg_catalog.count(*) AS running,
      pg_catalog.substr(a.application_name, pg_catalog.length(p.name) + 1) AS "group"
    FROM pg_catalog.pg_stat_activity AS a, shown AS p, shown AS i
    WHERE p.kind = 'prefix' AND i.kind = 'idle' AND a.datname = pg_catalog.current_database()
      AND pg_catalog.starts_with(a.application_name, p.name) AND a.application_name <> i.name
    GROUP BY a.application_name, p.name
  )
  SELECT g."group", coalesce(r.running, 0), g.waiting, g.due, g.oldest,
    EXISTS (SELECT FROM :"schema".:"pauseTable" AS p WHERE p."group" IS NULL OR p."group" = g."group")
  FROM (
    -- Of several whose names are cut to the same, the first one has what runs.
    SELECT s."group", s.waiting, s.due, s.oldest,
      CASE pg_catalog.row_number() OVER (PARTITION BY s.name ORDER BY s.due DESC, s."group") WHEN 1 THEN s.name END AS name
    FROM shown AS s WHERE s.kind = 'group'
    UNION ALL
    SELECT r."group", 0, 0, NULL, r.name FROM runs AS r
    WHERE NOT EXISTS (SELECT FROM shown AS s WHERE s.kind = 'group' AND s.name = r.name)
  ) AS g LEFT JOIN runs AS r ON r.name = g.name
$function$;
