import { availableParallelism } from "node:os";

/**
 * The numbers that decide how a manager schedules tasks, with the measurement or the reason that led to each. Where
 * only a reason is given, other values were not measured. Lock timeouts are in sql/lockTimeout.ts.
 *
 * Names with `Ms` are times in ms. "Between …" stands for the interval between two of these. Intervals with `first`
 * and `max` grow from the one to the other.
 */

// Sessions and threads

/** How many sessions share an executor thread before another one is started. */
export const preferredSessionsPerThread = 16;

/** How many sessions keep the server busy with tasks that only compute. More compete for the CPU (decision 21). */
export const computeSessions = Math.max(4, 2 * availableParallelism());

/**
 * How many sessions short runs can use for each ms of their median run time. Longer runs usually wait for the disk,
 * which serves many at once.
 */
export const sessionsPerRunMs = 8;
export const maxShortRunSessions = Math.max(32, computeSessions);

export const maxSessionIdleMs = 60_000;

/** A session that is to close for another role after its current run is not waited for if the run takes longer. */
export const longRunMs = 1_000;

/** How many startable tasks a claim counts beyond its own. The manager can ask for as many more sessions at once. */
export const maxLookAhead = 64;

/**
 * How many sessions short exclusive tasks can use. With fewer, each claim takes few tasks, and costs almost as much as
 * one of many.
 */
export const exclusiveSessions = Math.max(32, computeSessions);

/** The scaler assumes short runs until it has seen this many runs per session. */
export const samplesPerSession = 4;

/** The least time between two reports to the supervisor that the server has no free connection. */
export const serverFullReportMs = 500;

// Queues of busy sessions (decision 10)

/** Runs that are expected to take at most this long can be queued behind tasks of any group. */
export const shortRunMs = 5;

/** The largest median run time with which the number of sessions is computed for short runs. */
export const shortMedianMs = 2 * shortRunMs;

/** How many slots a group gets for each measured run. With few of them, the expected run time is uncertain. */
export const slotsPerMeasuredRun = 2;

/** The least time that a run occupies its session, however short its SQL is. */
export const minRunMs = 0.2;

/** The least time between two checks for runs over `pg_task.slow`. */
export const minOverrunCheckMs = 50;

/** The weights of the newest run in its group's average run time, and of the newest cycle in the average cycle time. */
export const runTimeWeight = 0.1;
export const cycleTimeWeight = 0.2;

/** Each run moves the estimated median run time up or down by this fraction. */
export const medianStep = 0.05;

/**
 * How much work should be queued in a session, in ms: `cycles` average cycles, but at least `min` and at most `max`.
 * Below the low-water mark, a session might run out of tasks before the next cycle. Work of groups that a session
 * already serves could not start in another one anyway. Queues of 70 ms gained nothing over queues of 15 ms (decision
 * 22).
 */
export const lowWaterMark = { min: 8, max: 60, cycles: 1.5 };
export const ownGroupQueue = { min: 25, max: 120, cycles: 3 };
export const anyGroupQueue = { min: 15, max: 100, cycles: 2.5 };

/** How long a task stays queued before it can be recalled for an unused session. */
export const minQueuedMs = 25;

// Cycles

/**
 * While all sessions have enough to do, results are collected for this long, or until so many have arrived. Collecting
 * for 12 ms made no difference (decision 22).
 */
export const collectMs = 4;
export const maxCollectedResults = 200;

/** Between checks of the table in deep sleep, which only find tasks whose notification was lost. */
export const maxSleepMs = 5 * 60_000;

/** The least time for which it is worth ending the thread of a manager in deep sleep. A start takes about 0.15 s of CPU. */
export const minThreadSleepMs = 30_000;
/** Between two checks of a manager that is to sleep as soon as it has nothing to do. */
export const sleepAtOnceCheckMs = 10;

/** Between comparisons of running tasks with their rows while writers do not notify the manager. */
export const checkRunsMs = 200;

/** Between comparisons of tasks with their rows while more than `fewTasks` are claimed. */
export const compareRowsMs = 25;
export const fewTasks = 64;

/**
 * A task that has been queued for this long is compared with its row repeatedly, because the manager is not notified of
 * every change. While runs are short, hardly any task waits that long.
 */
export const longQueuedMs = 100;

export const maxWrittenResults = 1_000;

/** How long the full completion writes all results after the plain one has failed. */
export const fullCompletionMs = 1_000;

// Webhooks (decision 40)

/** How many requests to a webhook are under way at once, and how long one may take, in ms. */
export const maxRequests = 8;
export const requestTimeoutMs = 10_000;

/** After a failure, the pause is doubled up to the longest one. The receiver may ask for a longer one (Retry-After). */
export const webhookPauseMs = { first: 1_000, max: 300_000, maxAsked: 3_600_000 };

/** The least time between two looks into the outbox, after one that failed, and between looks for what is too old. */
export const outboxPauseMs = { look: 20, failed: 1_000, limit: 60_000 };

/** For how many days an end is kept that a webhook does not accept, and how many of them for each webhook. */
export const outboxLimits = { days: 3, ends: 100_000 };

// Busy mode (decision 15)

/**
 * This many notifications within `floodMs` begin busy mode, because polling is then cheaper: 32 writers commit almost
 * six times as fast. With 20 instead of 100, tasks that arrive one by one start later (decision 15).
 */
export const maxNotifications = 100;
export const floodMs = 100;

/**
 * After `notifications` within `ms`, the manager looks whether writers wait for each other in order to notify. If
 * `waiting` of them do so twice in a row, busy mode begins, because with a slow disk the writers may never reach the
 * rate of `maxNotifications`. A look takes the longer, the more locks the server has, so a rest of `restFactor` times
 * as long follows.
 */
export const notifyQueue = { notifications: 20, ms: 1_000, waiting: 2, restFactor: 50 };

/** Without work, busy mode ends after `min`, and later if it began within `soonAgainMs` of its last end. */
export const busyQuietMs = { min: 50, max: 2_000 };
export const soonAgainMs = 1_000;

/** Polling interval in busy mode. It grows while polls find nothing. */
export const busyPollMs = { min: 2, max: 50 };

/** Polling interval while every session is busy. A new task could not start sooner anyway. */
export const saturatedPollMs = 200;

export const pollGrowth = 1.5;

/** Maximum polling interval after busy mode, while writers that did not notify may still commit. */
export const maxSettlePollMs = 200;

// Group scans (decision 6)

/** How many groups one scan visits: the smaller number while every session is busy and the next tasks are known. */
export const maxScannedGroups = { saturated: 50, normal: 1_000 };

/** How many newly inserted rows one scan reads. The regular scan round finds the remaining rows. */
export const maxInsertedRows = 500;

/** After a scan, or a search of paused groups, this many times its duration is left to other work. */
export const scanRestFactor = 10;

/** Between two scans while startable tasks are known. */
export const minScanIntervalMs = 2;

/** How often the time of the next planned task is read while every session is busy. */
export const planReadIntervalMs = 10;

/** Of how many groups without due or running tasks the time of the last start is remembered, for the column `gap`. */
export const maxRememberedStarts = 10_000;

/** How many paused groups one search visits, and how many tasks it reads in all of these groups together. */
export const maxPausedSearch = { groups: 50, tasks: 5_000 };

/** How long a paused group in which a search has found nothing is not searched again. */
export const pausedRestMs = 1_000;

export const maxMarkedDue = 1_000;

// Claims

/** How many due tasks the table has at most if a small claim can take them. */
export const maxSmallClaim = 8;

/** While more groups than this have tasks in sessions or due tasks, no small claims are sent. */
export const maxGroupsOfSmallClaim = 64;

/** How many claims of one cycle can come back empty. Results must not wait until all groups have been tried. */
export const maxEmptyClaims = 10;

/** How long one cycle can search for rejected tasks beyond those of its own claims. */
export const rejectedSearchMs = 200;

/** How many tasks one round of trial claims tries, and how long it can take. The whole cycle waits for it. */
export const trialRoundSize = { initial: 64, min: 8, max: 1_000 };
export const trialRoundMs = 50;

/** How long one series of trial rounds can take. It ends earlier if a task is rejected or its row is locked. */
export const trialRetryMs = 200;

/** If trials do not show which task is rejected, this many claims take only a single task. */
export const singleClaimsAfterTrials = 50;

// Retries

/**
 * Between rechecks of due tasks whose rows are locked. A recheck also follows every `sleep` ms, and a notification.
 * After each, at least `first` ms and `restFactor` times its duration are left to other work.
 */
export const lockedRecheckMs = { first: 20, max: 60_000, restFactor: 10 };

/** How long a rejected row is not tried again; at most `maxTransientRetryMs` after a transient error (decision 19). */
export const rejectedRowRetryMs = { first: 1_000, max: 60_000 };
export const maxTransientRetryMs = 5_000;

/** How long the server may reject the next try of a failed task before the task becomes FAIL instead. */
export const maxRejectedRetryMs = 20_000;

/**
 * How many owed successors are tried at once. If the server rejects one, a pause of `owedRestFactor` times the duration
 * follows, so that thousands that it rejects for good do not take the time of the other tasks.
 */
export const maxOwedTries = 20;
export const owedRestFactor = 9;

/** How long one call can spend on finding out which rows are rejected. The whole cycle waits for it. */
export const isolationMs = 50;

/** Between checks whether the backend of an orphan is gone, which usually ends soon after its connection. */
export const orphanCheckMs = { first: 10, max: 200 };

export const remoteQueryMs = { first: 200, max: 5_000 };

/** Between checks whether the server has free connections for waiting groups. */
export const connectionRetryMs = { first: 20, max: 1_000 };

/** How long sessions leave half of the free connections to remote tasks after the server has refused one. */
export const remoteReserveMs = 5_000;

/** If a single connection has been available for this long, no remote task seems to need it. */
export const connectionUnusedMs = 50;

/** How long a manager whose process is known to be frozen may hold the table lock. For others, see `pg_conf.frozen`. */
export const frozenManagerMs = 5_000;
/** How often to look whether other processes still have sessions with tasks. */
export const ownerCheckMs = 500;
/** How long another process that has answered is not asked again. */
export const ownersAskMs = 10_000;

/** How often the manager of a copy looks whether the copy has been accepted. */
export const copyCheckMs = 250;
/** How often, at least, a manager looks whether rows of a copy were loaded unnoticed. */
export const homeCheckMs = 60_000;

// Ledgers (decision 3)

/** After how many runs, or after which time, the two ledgers are switched. */
export const maxLedgerUse = { runs: 20_000, ms: 5 * 60_000 };

/** The time from a switch to the first attempt to empty the idle ledger. By then, most runs using it have ended. */
export const ledgerSettleMs = 2_000;

export const ledgerRetryMs = 1_000;

// Pruning

/** Between two rounds of pruning. After `max`, one follows in any case, because users may have changed `keep`. */
export const pruneIntervalMs = { min: 1_000, max: 5 * 60_000 };

// Schedules

/** Between two rounds that check planned tasks against the server's time zone data. */
export const zoneCheckIntervalMs = 24 * 60 * 60 * 1000;

/** How many planned tasks one step of such a round checks. Each takes up to half a millisecond. */
export const zoneCheckRows = 50;

/** How far the server's clock has to be set back for the schedules to be replanned. Vixie cron has the same limit. */
export const clockStepMs = 3 * 60 * 60 * 1000;

/** Between attempts to replan schedules whose rows were locked. */
export const clockStepRetryMs = 1_000;

// Watching the server (decision 18)

/** Between checks of the sessions' backends, while any session is busy or none is. */
export const backendCheckMs = { busy: 150, idle: 300 };

/** Between comparisons of the settings while tasks are claimed only for busy sessions. Each costs a query. */
export const settingsCheckMs = 250;

/** Between checks for stalls. In deep sleep, the three queries of a check would be most of what a manager does. */
export const stallCheckMs = { awake: 2_500, asleep: 30_000 };
