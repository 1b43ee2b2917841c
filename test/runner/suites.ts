/** Beginnings of the paths of the slow tests, which `npm run test:all` runs beside those of `npm test`. */
const slow = [
  "chaos/",
  "documents/",
  "integration/cli/completionShells",
  "integration/cli/import/real",
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

/** Beginnings of the paths of the quick tests that take longest. They are started first, so that none is alone at the end. */
const longest = [
  "integration/manager/tasks/lockingTriggers",
  "integration/manager/sessions/settingsAge",
  "integration/library/start",
  "integration/manager/tasks/bounded",
  "integration/manager/tasks/rejectedClaims",
  "integration/shared/postgres/connectionWatchdog",
  "integration/manager/recovery/networkCut",
  "conformance/levels",
  "integration/manager/groups/pausedGroups",
  "integration/supervisor/reload",
  "integration/manager/tasks/neighbours",
  "integration/cli/add",
  "conformance/wake",
  "integration/cli/everySetting",
  "integration/manager/sessions/remoteConnectionCapacity",
];

/** Whether this test file is one of those that take longest. */
export const takesLong = (path: string): boolean => longest.some((beginning) => path.startsWith(beginning));

/** The suites, and whether each contains a test file with this path. */
export const suites = {
  quick: (path: string): boolean => !isSlow(path),
  slow: isSlow,
  all: (): boolean => true,
} as const;
