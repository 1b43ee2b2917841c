/** Beginnings of the paths of the slow tests, which `npm run test:all` runs beside those of `npm test`. */
const slow = [
  "chaos/",
  "documents/",
  "integration/embedded/",
  "integration/manager/schema/adoption/",
  "integration/manager/schema/calendar/cronOracles",
  "integration/manager/schema/calendar/recurrenceOracles",
  "integration/package/",
  "integration/process/",
  "integration/supervisor/entries",
  "integration/supervisor/rolesAndDatabases",
  "integration/supervisor/sessionSharing",
  "integration/web/lostConnections",
  "integration/web/page/",
  "integration/web/promtool",
  "soak/",
];

const isSlow = (path: string): boolean => slow.some((beginning) => path.startsWith(beginning));

/** The suites, and whether each contains a test file with this path. */
export const suites = {
  quick: (path: string): boolean => !isSlow(path),
  slow: isSlow,
  all: (): boolean => true,
} as const;
