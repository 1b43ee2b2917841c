/**
 * Beginnings of the paths that only `npm run test:all` runs. `npm test` runs the others: they show within minutes whether
 * a change works.
 */
const onlyInAll = [
  "chaos/",
  "documents/",
  "integration/embedded/",
  "integration/manager/schema/adoption/",
  "integration/manager/schema/calendar/cronOracles",
  "integration/manager/schema/calendar/recurrenceOracles",
  "integration/package/",
  "integration/process/",
  "integration/web/page/",
  "soak/",
];

export const isOnlyInAll = (path: string): boolean => onlyInAll.some((beginning) => path.startsWith(beginning));
