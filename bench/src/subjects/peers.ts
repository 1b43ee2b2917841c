import type { Peer } from "./peer.js";

const graphile = {
  file: "graphileWorker",
  counts: `SELECT count(*) FILTER (WHERE NOT gave_up)::integer AS left, NULL AS completed,
      count(*) FILTER (WHERE gave_up)::integer AS "gaveUp"
    FROM (SELECT attempts >= max_attempts AND locked_at IS NULL AS gave_up FROM graphile_worker._private_jobs) AS job`,
} as const;

export const graphileDefault: Peer = { ...graphile, pool: 10, setting: () => ({}) };

/**
 * The settings that graphile-worker's own performance page recommends, with the number of concurrent jobs that `tune`
 * found to be best.
 */
export const graphileBestSetting = {
  concurrentJobs: 16,
  maxPoolSize: 17,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
} as const;

/** In a sequential queue, graphile-worker finds the next job only at its next poll, so it has to poll often. */
export const graphileBest: Peer = {
  ...graphile,
  pool: 16,
  setting: ({ serial }) => (serial ? { pollInterval: 1 } : graphileBestSetting),
};

const boss = {
  file: "pgBoss",
  counts: `SELECT count(*) FILTER (WHERE state < 'completed')::integer AS left,
    count(*) FILTER (WHERE state = 'completed')::integer AS completed,
    count(*) FILTER (WHERE state = 'failed')::integer AS "gaveUp" FROM pgboss.job WHERE name = 'run'`,
} as const;

/** Runs jobs one by one, in the number of loops that was best on the machine of the measurements. */
export const bossSingle: Peer = {
  ...boss,
  pool: 16,
  setting: ({ groups }) => ({ loops: 16, ...(groups === 1 ? {} : { groupConcurrency: 1 }) }),
};

export const bossBest: Peer = {
  ...boss,
  pool: 16,
  setting: ({ groups }) => ({
    batchSize: 1000,
    perJobResults: true,
    pollingIntervalSeconds: 0.5,
    burstWhenBatchFull: true,
    ...(groups === 1 ? {} : { groupConcurrency: 1 }),
  }),
};

function withPolicy(policy: string): Peer {
  return { ...bossBest, setting: (work) => ({ ...bossBest.setting(work), policy }) };
}

/** At most one job of a key waits and at most one runs, as in pg-task. */
export const bossStately = withPolicy("stately");

/** At most one job of a key waits, but several can run, as in graphile-worker. */
export const bossShort = withPolicy("short");

/**
 * With dependencies. By itself, pg-boss releases dependent jobs once a second at most, so it is told to release them
 * more often.
 */
export const bossFlow: Peer = { ...bossBest, setting: (work) => ({ ...bossBest.setting(work), resolveMs: 20 }) };

const { localQueue: _, ...withoutLocalQueue } = graphileBestSetting;

/** Each session fetches one job at a time, which can be better if few jobs are ready at a time. */
export const graphileDirect: Peer = { ...graphileBest, setting: () => withoutLocalQueue };

/** For single jobs: with the default settings, but as many concurrent jobs as pg-task has sessions by default. */
export const graphileConcurrent: Peer = {
  ...graphile,
  pool: 24,
  setting: () => ({ concurrentJobs: 24, maxPoolSize: 25 }),
};

/** For single jobs: new jobs notify the workers. */
export const bossNotified: Peer = {
  ...bossBest,
  setting: (work) => ({ ...bossBest.setting(work), notify: true }),
};

/** Not a library, but the least that a queue does. Measured with single jobs, to show what cannot be undercut. */
export const bareQueue: Peer = {
  file: "bareQueue",
  pool: 16,
  setting: () => ({}),
  counts: `SELECT count(*) FILTER (WHERE state <> 'done')::integer AS left,
    count(*) FILTER (WHERE state = 'done')::integer AS completed, 0 AS "gaveUp" FROM bare.job`,
};

/** For jobs that are tried again. graphile-worker finds a job whose pause has passed at its next poll. */
export const graphileRetrying: Peer = {
  ...graphileBest,
  setting: () => ({ ...graphileBestSetting, pollInterval: 100 }),
};
