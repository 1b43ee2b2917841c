import { bossBest, bossSingle, graphileBest, graphileDefault } from "./peers.js";
import { peerSubject } from "./peer.js";
import { pgbenchCycle, pgbenchSelect } from "./pgbench.js";
import { bestConfiguration, pgTask } from "./pgTask.js";
import type { Subject } from "./subject.js";

/** The subject that all others are compared with. */
export const reference = "graphile-worker-best";

/** All subjects, in the order of a round. */
export const subjects: readonly Subject[] = [
  pgTask("pg-task", "pg-task, best setting", bestConfiguration),
  peerSubject(reference, "graphile-worker, best setting", graphileBest),
  pgTask("pg-task-default", "pg-task, default settings", {}, { share: 0.5 }),
  peerSubject("graphile-worker-default", "graphile-worker, default settings", graphileDefault, {
    // With default settings, graphile-worker takes two seconds for each sequential job.
    does: (work) => !work.serial,
    share: 0.25,
  }),
  pgTask(
    "pg-task-unwrapped",
    "pg-task, best setting, `atomic` off",
    { ...bestConfiguration, "pg_task.atomic": false },
    { does: (work) => work.name === "select" || work.writes },
  ),
  pgTask(
    "pg-task-retry",
    "pg-task, best setting, `pg_task.retry` 3",
    { ...bestConfiguration, "pg_task.retry": 3 },
    { does: (work) => ["select", "insert"].includes(work.name) },
  ),
  peerSubject("pg-boss-best", "pg-boss, batches of 1,000", bossBest, {
    does: (work) => !work.serial,
  }),
  peerSubject("pg-boss-single", "pg-boss, one by one", bossSingle, {
    does: (work) => work.groups === 1 && !work.serial,
    share: 0.1,
  }),
  pgbenchSelect("pgbench-select", "pgbench, bare `SELECT 1`", "simple"),
  pgbenchSelect("pgbench-prepared", "pgbench, bare `SELECT 1`, prepared", "prepared"),
  pgbenchCycle,
];
