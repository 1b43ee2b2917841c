import { hasRemote } from "./remotes.js";

/** A kind of task, and what must be true when a task of this kind has ended, whatever faults occurred. */
interface Kind {
  readonly name: string;
  readonly input: string;
  readonly weight: number;
  /**
   * SQL condition that is true if the row is correct. It can use `state`, `effects`, `error`, `replanned` and `ended`.
   */
  readonly expected: string;
  /** SQL expressions for additional columns, by name. */
  readonly extraColumns?: Readonly<Record<string, string>>;
}

/**
 * Setting the state of a running task cancels its run, which then has no effect. A task that is set to PLAN right after
 * the run's commit runs again.
 */
const exactlyOnce = `state = 'DONE' AND (effects = 1 OR replanned AND effects > 1)
  OR state IN ('STOP', 'FAIL', 'GONE') AND effects = 0`;

/** The task fails, or is ended by its user, and has no effect. */
const neverOnce = "state IN ('FAIL', 'STOP', 'GONE') AND effects = 0";

const effect = "INSERT INTO effect (task) VALUES (current_setting('pg_task.id')::bigint)";

const localKinds: readonly Kind[] = [
  {
    name: "an insert",
    input: effect,
    weight: 8,
    expected: exactlyOnce,
  },
  {
    name: "an insert with short waits",
    input: `SELECT pg_sleep(0.02); ${effect}; SELECT pg_sleep(0.02)`,
    weight: 4,
    expected: exactlyOnce,
  },
  {
    name: "an insert that blocks its session",
    input: `SELECT pg_sleep(0.2); ${effect}`,
    weight: 1,
    expected: exactlyOnce,
  },
  {
    name: "an insert with a timeout",
    input: effect,
    weight: 4,
    extraColumns: { timeout: "interval '1 hour'" },
    expected: exactlyOnce,
  },
  {
    name: "an insert that takes longer than its timeout",
    input: `${effect}; SELECT pg_sleep(600)`,
    weight: 1,
    extraColumns: { timeout: "interval '1 second'" },
    expected: neverOnce,
  },
  {
    name: "an insert whose successor is rejected",
    input: effect,
    weight: 1,
    // The successor would have the same ticket, which is unique.
    extraColumns: {
      repeat: "interval '1 second'",
      ticket: "md5(random()::text || clock_timestamp()::text)",
    },
    // A task whose state is set between its commit and the writing of its result becomes DONE without a successor.
    expected: `(${exactlyOnce}) AND (state <> 'DONE' OR error LIKE '%ticket%' OR ended)`,
  },
  {
    name: "an insert whose row a trigger sometimes rejects",
    input: effect,
    weight: 1,
    expected: exactlyOnce,
  },
  {
    name: "an insert in a transaction of its own, left open",
    input: `BEGIN; ${effect}`,
    weight: 2,
    expected: exactlyOnce,
  },
  {
    name: "an insert that fails at the end",
    input: `${effect}; SELECT 1 / 0`,
    weight: 2,
    expected: neverOnce,
  },
  {
    name: "a query",
    input: "SELECT 1",
    weight: 3,
    expected: "state IN ('DONE', 'STOP', 'FAIL', 'GONE') AND effects = 0",
  },
  {
    name: "an insert that commits itself",
    input: `BEGIN; ${effect}; COMMIT`,
    weight: 2,
    expected: "state = 'DONE' AND effects >= 1 OR state IN ('STOP', 'FAIL', 'GONE')",
  },
  {
    name: "a statement that cannot run in a transaction",
    input: "VACUUM swept",
    weight: 1,
    expected: "state IN ('DONE', 'STOP', 'FAIL', 'GONE') AND effects = 0",
  },
];

/** A loss of the connection or a server that refuses it is the task's error. Any other error would be one of pg-task. */
const onlyServerFailed = `(state <> 'FAIL' OR ended OR error ~ 'connection|database system')`;

const remote = "(SELECT remote FROM second_server)";

/** Tasks that run on the second server, and have their effects there. */
const remoteKinds: readonly Kind[] = [
  {
    name: "remote: an insert",
    input: effect,
    weight: 4,
    extraColumns: { remote },
    expected: `(${exactlyOnce}) AND ${onlyServerFailed}`,
  },
  {
    name: "remote: an insert that is tried until it is done",
    input: effect,
    weight: 6,
    extraColumns: { remote, retry: "1000000", backoff: "interval '50 ms'" },
    expected: `(${exactlyOnce}) AND (state = 'DONE' OR ended)`,
  },
  {
    name: "remote: an insert with waits",
    input: `SELECT pg_sleep(0.2); ${effect}; SELECT pg_sleep(0.2)`,
    weight: 3,
    extraColumns: { remote, retry: "1000000", backoff: "interval '50 ms'" },
    expected: `(${exactlyOnce}) AND (state = 'DONE' OR ended)`,
  },
  {
    name: "remote: an insert in a session that is kept",
    input: effect,
    weight: 4,
    extraColumns: { remote, live: "interval '1 minute'" },
    expected: `(${exactlyOnce}) AND ${onlyServerFailed}`,
  },
  {
    name: "remote: an insert that fails at the end",
    input: `${effect}; SELECT 1 / 0`,
    weight: 1,
    extraColumns: { remote },
    expected: neverOnce,
  },
  {
    name: "remote: an insert that takes longer than its timeout",
    input: `${effect}; SELECT pg_sleep(600)`,
    weight: 1,
    extraColumns: { remote, timeout: "interval '1 second'" },
    expected: neverOnce,
  },
];

export const kinds = hasRemote ? [...localKinds, ...remoteKinds] : localKinds;
