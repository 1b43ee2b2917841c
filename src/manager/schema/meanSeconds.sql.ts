/**
 * SQL of the mean length of an interval in seconds, with Gregorian months. The functions and operators are exactly those
 * of pg_catalog, because views use this with the `search_path` of their readers.
 */
export const meanSeconds = (interval: string): string =>
  `(pg_catalog.date_part('year', ${interval}) * 31556952::float8 + pg_catalog.date_part('month', ${interval}) * 2629746::float8
    + pg_catalog.date_part('day', ${interval}) * 86400::float8 + pg_catalog.date_part('hour', ${interval}) * 3600::float8
    + pg_catalog.date_part('minute', ${interval}) * 60::float8 + pg_catalog.date_part('second', ${interval}))`;
