/** Most characters of a text in a list. */
const briefLength = 300;

/** Of a longer output not even the beginning is read: some servers unpack the whole for it. */
const longestTouched = 1_000_000;

/** A time as ISO 8601 with its offset, or `infinity`; of whatever type the column is. */
export const isoTime = (column: string): string =>
  `to_jsonb(${column}::timestamptz) #>> '{}' AS ${column}`;

/** What a list shows of a task; `input`, `error` are cut where the server keeps them, not read whole. */
export const briefColumns = `
  id::text AS id, parent::text AS parent, state::text AS state, "group"::text AS "group",
  ${["plan", "start", "stop"].map(isoTime).join(", ")},
  CASE WHEN isfinite(start::timestamptz) AND isfinite(stop::timestamptz)
    THEN extract(epoch FROM stop::timestamptz - start::timestamptz)::float8 * 1000 END AS "runMs",
  ready, pid::int AS pid, remote IS NOT NULL AS remote,
  substr(input::text, 1, ${briefLength}) AS input, substr(error::text, 1, ${briefLength}) AS error,
  octet_length(output::text) AS "outputBytes",
  CASE WHEN octet_length(output::text) <= ${longestTouched} THEN substr(output::text, 1, ${briefLength}) END AS output`;
