import { availableParallelism } from "node:os";

/**
 * The numbers that decide how a manager schedules tasks. Each has its unit, and the measurement or the reason that led
 * to its value. Where only a reason is given, other values were not measured. Lock timeouts are in sql/lockTimeout.ts.
 * Numbers that do not steer scheduling, such as the size of a cache, are defined where they are used.
 */

// Sessions and threads

/** How many sessions share an executor thread before another thread is started. */
export const preferredSessionsPerThread = 16;

/**
 * How many sessions keep the server busy when their tasks only compute. More sessions would only compete for the CPU
 * (decision 21).
 */
export const computeSessions = Math.max(4, 2 * availableParallelism());

/**
 * How many sessions short runs can use, for each ms of their median run time. Runs that take longer usually wait for
 * the disk, which serves many of them at once.
 */
export const sessionsPerRunMs = 8;
export const maxShortRunSessions = Math.max(32, computeSessions);

/** A session without a task is closed after this time, in ms. */
export const maxSessionIdleMs = 60_000;

/**
 * How many startable tasks a claim counts, at most, beyond the tasks that the free sessions can take. The manager can
 * ask for that many more sessions at once.
 */
export const maxLookAhead = 64;

/**
 * How many sessions short exclusive tasks can use. With fewer sessions, the manager claims few tasks at once, and each
 * claim costs almost as much as one of many tasks.
 */
export const exclusiveSessions = Math.max(32, computeSessions);

/** The scaler assumes short runs until it has seen this many runs per session. */
export const samplesPerSession = 4;

/** Minimum time between two reports to the supervisor that the server has no free connection, in ms. */
export const serverFullReportMs = 500;

// Queues of busy sessions (decision 10)

/**
 * A run is short if it is expected to take at most this long, in ms. Short runs can be queued behind tasks of any
 * group.
 */
export const shortRunMs = 5;

/** The largest median run time, in ms, with which the number of sessions is computed for short runs. */
export const shortMedianMs = 2 * shortRunMs;

/**
 * For each measured run of a group, the group can get this many slots behind its own tasks. While few runs have been
 * measured, the expected run time is uncertain.
 */
export const slotsPerMeasuredRun = 2;

/** The minimum time that a run occupies its session, in ms, however short its SQL is. */
export const minRunMs = 0.2;

/**
 * The weight of the newest run in its group's average run time, and the weight of the newest cycle in the average cycle
 * time.
 */
export const runTimeWeight = 0.1;
export const cycleTimeWeight = 0.2;

/** Each run moves the estimated median run time up or down by this fraction. */
export const medianStep = 0.05;

/**
 * How much work should be queued in a session, in ms: the duration of `cycles` average cycles, but at least `min` and
 * at most `max`. Below the low-water mark, a session might run out of tasks before the next cycle. A session can have
 * more work queued from the groups it already serves, because that work could not start in another session anyway.
 * Queues of 70 ms gained nothing over queues of 15 ms (decision 22).
 */
export const lowWaterMark = { min: 8, max: 60, cycles: 1.5 };
export const ownGroupQueue = { min: 25, max: 120, cycles: 3 };
export const anyGroupQueue = { min: 15, max: 100, cycles: 2.5 };

/** How long a task stays queued, in ms, before it can be recalled for an unused session. */
export const minQueuedMs = 25;

// Cycles

/**
 * While all sessions have enough to do, results are collected for this long, in ms, or until `maxCollectedResults` of
 * them have arrived. Collecting for 12 ms made no difference (decision 22).
 */
export const collectMs = 4;
export const maxCollectedResults = 200;

/** Interval, in ms, between checks of the table in deep sleep. They only find tasks whose notification was lost. */
export const maxSleepMs = 5 * 60_000;

/** Interval, in ms, between comparisons of running tasks with their rows while writers do not notify the manager. */
export const checkRunsMs = 200;

/** Minimum time between comparisons of tasks with their rows, in ms, while more than `fewTasks` tasks are claimed. */
export const compareRowsMs = 25;
export const fewTasks = 64;

/**
 * Once a task has been queued for this long, in ms, it is compared with its row repeatedly, because the manager is not
 * notified of every change. While runs are short, hardly any task waits that long, so the check costs almost nothing.
 */
export const longQueuedMs = 100;

/** Maximum number of results that one statement writes. */
export const maxWrittenResults = 1_000;

/** After the plain completion has failed, the full completion writes all results for this long, in ms. */
export const fullCompletionMs = 1_000;

// Busy mode (decision 15)

/**
 * When this many notifications arrive within `floodMs`, the manager enters busy mode, because polling is then cheaper
 * for the manager and for the writers. Without notifications, 32 writers commit almost six times as fast. With 20 instead
 * of 100, tasks that arrive one by one start later (decision 15).
 */
export const maxNotifications = 100;
export const floodMs = 100;

/**
 * After `notifications` within `ms`, the manager looks whether writers wait for each other in order to notify. If `waiting`
 * of them do so twice in a row, it enters busy mode, because on a server with a slow disk the writers may never reach the
 * rate of `maxNotifications`. After each look it does not look for `restFactor` times as long as the look took, because
 * that depends on how many locks the server has.
 */
export const notifyQueue = { notifications: 20, ms: 1_000, waiting: 2, restFactor: 50 };

/**
 * Busy mode ends when the manager has found no work for `busyQuietMs.min`, in ms. If busy mode begins again within
 * `soonAgainMs` of its last end, this time grows, up to `busyQuietMs.max`.
 */
export const busyQuietMs = { min: 50, max: 2_000 };
export const soonAgainMs = 1_000;

/** Polling interval in busy mode, in ms. It starts at `min` and grows up to `max` while polls find nothing. */
export const busyPollMs = { min: 2, max: 50 };

/** Polling interval in busy mode while every session is busy, in ms. A new task could not start sooner anyway. */
export const saturatedPollMs = 200;

/** Each poll that finds nothing makes the polling interval this many times as long. */
export const pollGrowth = 1.5;

/** Maximum polling interval after busy mode, in ms, while writers that did not notify may still commit. */
export const maxSettlePollMs = 200;

// Group scans (decision 6)

/**
 * How many groups one scan visits. The smaller number applies while every session is busy and the next tasks are known.
 */
export const maxScannedGroups = { saturated: 50, normal: 1_000 };

/** How many newly inserted rows one scan reads. The regular scan round finds the remaining rows. */
export const maxInsertedRows = 500;

/**
 * After a scan, or a search of paused groups, this many times its duration is left to other work. Scans and searches
 * therefore take at most a tenth of the time.
 */
export const scanRestFactor = 10;

/** Minimum time between two scans while startable tasks are known, in ms. */
export const minScanIntervalMs = 2;

/** Interval, in ms, at which the time of the next planned task is read while every session is busy. */
export const planReadIntervalMs = 10;

/** Of how many groups without due or running tasks the time of the last start is remembered, for the column `gap`. */
export const maxRememberedStarts = 10_000;

/** How many paused groups one search visits, and how many tasks it reads in all of these groups together. */
export const maxPausedSearch = { groups: 50, tasks: 5_000 };

/** How long to wait before searching a paused group again after a search found nothing in it, in ms. */
export const pausedRestMs = 1_000;

/** Maximum number of tasks that one statement marks as due. */
export const maxMarkedDue = 1_000;

// Claims

/** How many due tasks the table has at most if a small claim can take them. */
export const maxSmallClaim = 8;

/** While more groups than this have tasks in sessions or due tasks, no small claims are sent. */
export const maxGroupsOfSmallClaim = 64;

/**
 * How many claims of one cycle can come back empty before the cycle stops claiming. A claim comes back empty when the
 * first known due task of each of its groups is no longer due. The limit exists because results must not wait until all
 * groups have been tried.
 */
export const maxEmptyClaims = 10;

/** How long one cycle can search for rejected tasks beyond the tasks of its own claims, in ms. */
export const rejectedSearchMs = 200;

/**
 * How many tasks one round of trial claims tries, and how long a round can take, in ms. The whole cycle waits for the
 * round.
 */
export const trialRoundSize = { initial: 64, min: 8, max: 1_000 };
export const trialRoundMs = 50;

/** How long one series of trial rounds can take, in ms. It ends earlier if a task is rejected or its row is locked. */
export const trialRetryMs = 200;

/** If trials do not show which task is rejected, this many claims take only a single task. */
export const singleClaimsAfterTrials = 50;

// Retries

/**
 * Intervals between rechecks of due tasks whose rows are locked, in ms. They grow from `first` to `max`, but a recheck
 * also follows every `sleep` ms, and a notification. After a recheck, at least `first` ms and `restFactor` times its
 * duration are left to other work.
 */
export const lockedRecheckMs = { first: 20, max: 60_000, restFactor: 10 };

/**
 * Delay before a rejected row is tried again, in ms. It grows from `first` to `max`, but is at most
 * `maxTransientRetryMs` after a transient error (decision 19).
 */
export const rejectedRowRetryMs = { first: 1_000, max: 60_000 };
export const maxTransientRetryMs = 5_000;

/** How long the server may reject the next try of a failed task before the task becomes FAIL instead, in ms. */
export const maxRejectedRetryMs = 20_000;

/**
 * How many owed successors are tried at once. If the server rejects one of them, the next follow after a second, so that
 * thousands of schedules that it rejects for good do not take the time of the other tasks.
 */
export const maxOwedTries = 20;
/** If the server has rejected some of them, the next ones follow only after a pause of this many times the duration. */
export const owedRestFactor = 9;

/** How long one call can spend on finding out which rows are rejected, in ms. The whole cycle waits for the call. */
export const isolationMs = 50;

/**
 * Intervals between checks whether the backend of an orphan is gone, in ms. They grow from `first` to `max`. The
 * backend usually ends soon after its connection.
 */
export const orphanCheckMs = { first: 10, max: 200 };

/** Intervals between queries to the server of a lost remote run, in ms. They grow from `first` to `max`. */
export const remoteQueryMs = { first: 200, max: 5_000 };

/**
 * Intervals between checks whether the server has free connections for waiting groups, in ms. They grow from `first` to
 * `max`.
 */
export const connectionRetryMs = { first: 20, max: 1_000 };

/**
 * After the server has refused a connection, sessions leave half of the free connections to remote tasks for this long,
 * in ms.
 */
export const remoteReserveMs = 5_000;

/** If a single connection has been available for this long, in ms, no remote task seems to need it. */
export const connectionUnusedMs = 50;

/**
 * How long a manager that holds the table lock may go without an answer, in ms, if its process is already known to be
 * frozen. Otherwise `pg_conf.frozen` applies.
 */
export const frozenManagerMs = 5_000;
/** How often to look whether other processes still have sessions with tasks, in ms. */
export const ownerCheckMs = 500;
/** Pause after another process has answered, before it is asked again, in ms. */
export const ownersAskMs = 10_000;

/** How often the manager of a copy looks whether the copy has been accepted, in ms. */
export const copyCheckMs = 250;
/** How often, at least, a manager that serves its table looks whether rows of a copy were loaded unnoticed, in ms. */
export const homeCheckMs = 60_000;

// Ledgers (decision 3)

/** The two ledgers are switched after this many runs, or after this time in ms. */
export const maxLedgerUse = { runs: 20_000, ms: 5 * 60_000 };

/** Time from a switch to the first attempt to empty the idle ledger, in ms. By then, most runs using it have ended. */
export const ledgerSettleMs = 2_000;

/** Time before the next attempt to empty a ledger, in ms. */
export const ledgerRetryMs = 1_000;

// Pruning

/**
 * Minimum and maximum time between two rounds of pruning, in ms. After `max` a round follows even if no row seems to be
 * old enough, because users may have changed `keep`.
 */
export const pruneIntervalMs = { min: 1_000, max: 5 * 60_000 };

// Schedules

/** Time between two rounds that check planned tasks against the server's time zone data, in ms. */
export const zoneCheckIntervalMs = 24 * 60 * 60 * 1000;

/** How many planned tasks one step of such a round checks. Each takes up to half a millisecond. */
export const zoneCheckRows = 50;

/**
 * How far the server's clock has to be set back for the schedules to be replanned, in ms. Vixie cron has the same limit.
 */
export const clockStepMs = 3 * 60 * 60 * 1000;

/** Time until another attempt to replan schedules whose rows were locked, in ms. */
export const clockStepRetryMs = 1_000;

// Watching the server (decision 18)

/** Interval between checks of the sessions' backends, in ms: `busy` if any session is busy, `idle` if none is. */
export const backendCheckMs = { busy: 150, idle: 300 };

/**
 * Interval, in ms, between comparisons of the settings, during periods when tasks are claimed only for busy sessions.
 * Each comparison costs a query.
 */
export const settingsCheckMs = 250;

/**
 * How often the manager looks for stalls, in ms. In deep sleep, the three queries of a check would be most of what a
 * manager does.
 */
export const stallCheckMs = { awake: 2_500, asleep: 30_000 };
