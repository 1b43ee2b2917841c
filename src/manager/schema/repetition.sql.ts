/** How far an estimated number of repetitions can be wrong: months, years and days vary in length. */
export const margin = 40;

const fieldSeconds = { year: 31_556_952, month: 2_629_746, day: 86_400, hour: 3_600, minute: 60, second: 1 };

/** SQL of the mean length of an interval in seconds. */
export const meanSeconds = (interval: string): string =>
  `(${Object.entries(fieldSeconds)
    .map(
      ([name, seconds]) =>
        `(pg_catalog.date_part('${name}', ${interval}) OPERATOR(pg_catalog.*) ${seconds}::pg_catalog.float8)`,
    )
    .join(" OPERATOR(pg_catalog.+) ")})`;
