/** SQL of what tells a task's runs apart, as ledgers have it: when it was claimed, in µs since 1970. */
export const takenAt = (task: string): string =>
  `(date_part('epoch', ${task}.take) * 1000000)::bigint`;
