import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";
import type { Cluster } from "./cluster.js";
import type { Random } from "./random.js";
import type { Sabotage } from "../support/saboteur.js";

/** The longest time for which results cannot be written before the processes are killed, in ms. */
const maxUnwrittenMs = 500;

/** The longest time for which the trigger of the task table raises errors, in ms. */
const maxRaisingMs = 3000;

/** A fault that can be injected. `inject` resolves when whatever it broke is working again. */
interface Fault {
  readonly name: string;
  readonly weight: number;
  inject(cluster: Cluster, random: Random, client: Client): Promise<void>;
}

const terminate =
  (applicationName: string, count: number) =>
  async (_: Cluster, random: Random, client: Client): Promise<void> => {
    const { rows } = await client.query<{ pid: number }>(
      "SELECT pid FROM pg_stat_activity WHERE application_name LIKE $1 ORDER BY backend_start, pid",
      [applicationName],
    );
    for (let each = 0; each < count && rows.length > 0; each += 1) {
      await client.query("SELECT pg_terminate_backend($1)", [random.pick(rows).pid]);
    }
  };

const restart =
  (signal: NodeJS.Signals) =>
  async (cluster: Cluster, random: Random): Promise<void> =>
    await cluster.restartProcess(random.below(cluster.size), signal);

const sabotage =
  (thread: Sabotage["thread"]) =>
  async (cluster: Cluster, random: Random): Promise<void> =>
    cluster.sabotage(random.below(cluster.size), { thread, how: random.pick(["throw", "exit"]) });

export const faults: readonly Fault[] = [
  { name: "a session's backend is terminated", weight: 6, inject: terminate("pg_task %", 1) },
  {
    name: "several sessions' backends are terminated",
    weight: 3,
    inject: terminate("pg_task %", 4),
  },
  { name: "a manager's backend is terminated", weight: 3, inject: terminate("pg_work %", 1) },
  { name: "a supervisor's backend is terminated", weight: 2, inject: terminate("pg_conf%", 1) },
  { name: "the manager threads of a process die", weight: 2, inject: sabotage("manager") },
  { name: "the executor threads of a process die", weight: 2, inject: sabotage("executor") },
  { name: "a process is killed", weight: 4, inject: restart("SIGKILL") },
  { name: "a process is stopped and started", weight: 3, inject: restart("SIGTERM") },
  {
    // Only the proofs of the runs that are committed in the meantime tell how these ended.
    name: "all processes are killed before they can write results",
    weight: 3,
    inject: async (cluster, random, client) => {
      await client.query("BEGIN; LOCK TABLE task IN SHARE ROW EXCLUSIVE MODE");
      await sleep(random.below(maxUnwrittenMs));
      for (let nth = 0; nth < cluster.size; nth += 1) await cluster.restartProcess(nth, "SIGKILL");
      // Meanwhile, no successor could be inserted.
      await client.query("INSERT INTO audit_failure VALUES ('LOCK', now(), clock_timestamp()); COMMIT");
    },
  },
  {
    name: "a trigger of the task table raises errors",
    weight: 3,
    inject: async (_, random, client) => {
      const ms = random.below(maxRaisingMs);
      await client.query(
        "INSERT INTO audit_failure SELECT $1, clock_timestamp(), clock_timestamp() + $2 * interval '1 ms'",
        [random.pick(["INSERT", "UPDATE", "DELETE", "INSERT UPDATE DELETE"]), ms],
      );
      await sleep(ms);
    },
  },
  {
    name: "a connection goes silent",
    weight: 3,
    inject: async ({ network }, random) => network.silence(random.below(network.size)),
  },
  {
    name: "silent connections break",
    weight: 3,
    inject: async ({ network }) => network.breakSilent(),
  },
  {
    name: "the server is shut down fast",
    weight: 1,
    inject: (cluster) => cluster.restartServer("SIGINT"),
  },
  {
    name: "the server is shut down at once",
    weight: 1,
    inject: (cluster) => cluster.restartServer("SIGQUIT"),
  },
  {
    name: "the server is killed",
    weight: 1,
    inject: (cluster) => cluster.restartServer("SIGKILL"),
  },
];
