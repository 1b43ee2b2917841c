/** SQL of a time as ISO 8601 with its zone's offset, or `infinity`; a time without zone is the session's. */
export const isoTime = (expression: string): string =>
  `pg_catalog.to_json((${expression})::timestamptz) #>> '{}'`;

/** SQL of an interval's length in ms. */
export const milliseconds = (expression: string): string =>
  `round((pg_catalog.date_part('epoch', ${expression}) * 1000)::numeric, 3)::float8`;
