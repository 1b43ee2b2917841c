import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";
import type { Cluster } from "./cluster.js";
import type { Random } from "./random.js";
import type { Sabotage } from "../support/saboteur.js";
import { withConnectionTo } from "../support/connectTo.js";
import { changeProven, isProven, prepareTransaction, startSome } from "./flow.js";
import { touch } from "./options.js";

/** The longest time for which results cannot be written before the processes are killed, in ms. */
const maxUnwrittenMs = 500;

/** The longest time for which a transaction is prepared while nothing else happens, in ms. */
const maxPreparedMs = 2000;

/** The longest time for which a process is frozen, in ms. */
const maxFrozenMs = 6000;

/** The longest time for which the trigger of the task table raises errors, in ms. */
const maxRaisingMs = 3000;

/** The longest time for which the second server is down, in ms. */
const maxDownMs = 3000;

/** A fault that can be injected. `inject` resolves when whatever it broke is working again. */
interface Fault {
  readonly name: string;
  readonly weight: number;
  inject(cluster: Cluster, random: Random, client: Client): Promise<void>;
}

type Server = "first" | "second";

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

const restartServer =
  (server: Server, signal: "SIGINT" | "SIGQUIT" | "SIGKILL"): Fault["inject"] =>
  async (cluster, random) =>
    await cluster[server].restart(signal, server === "first" ? 0 : random.below(maxDownMs));

const silence =
  (server: Server): Fault["inject"] =>
  async (cluster, random) => {
    const { network } = cluster[server];
    network.silence(random.below(network.size));
  };

const breakSilent =
  (server: Server): Fault["inject"] =>
  async (cluster) =>
    cluster[server].network.breakSilent();

/** Ends whatever writes results, or nothing. */
const endWriters: readonly Fault["inject"][] = [
  async () => {},
  terminate("pg_work %", 3),
  async (cluster, random) => {
    const how = random.pick(["throw", "exit"] as const);
    for (let nth = 0; nth < cluster.size; nth += 1) cluster.sabotage(nth, { thread: "manager", how });
  },
  async (cluster) => {
    for (let nth = 0; nth < cluster.size; nth += 1) await cluster.restartProcess(nth, "SIGKILL");
  },
];

/** What happens while a transaction is prepared. */
const duringPrepared: readonly Fault["inject"][] = [
  async (_, random) => await sleep(random.below(maxPreparedMs)),
  restartServer("first", "SIGKILL"),
  restartServer("first", "SIGINT"),
  restart("SIGKILL"),
  terminate("pg_work %", 1),
];

let lastPrepared = 0;

/** Resolves the transactions that are still prepared. Nobody knows any more how they were meant to end. */
export async function resolvePrepared(client: Client): Promise<void> {
  const { rows } = await client.query<{ gid: string }>("SELECT gid FROM pg_prepared_xacts");
  for (const { gid } of rows) await client.query(`ROLLBACK PREPARED '${gid}'`);
}

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
    // Only users' changes that come before the commit undo its effect.
    name: "users change rows between commit and result, while what writes results dies",
    weight: 4,
    inject: async (cluster, random, client) => {
      await startSome(client, random);
      await client.query("BEGIN; LOCK TABLE task IN SHARE ROW EXCLUSIVE MODE");
      await sleep(random.below(maxUnwrittenMs));
      if (random.below(2) === 0) await random.pick(endWriters)(cluster, random, client);
      await changeProven(client, random);
      for (let each = 0; each < 3; each += 1) await touch(client, random, isProven);
      await random.pick(endWriters)(cluster, random, client);
      await client.query("INSERT INTO audit_failure VALUES ('LOCK', now(), clock_timestamp()); COMMIT");
    },
  },
  {
    name: "a prepared transaction keeps rows locked",
    weight: 3,
    inject: async (cluster, random, client) => {
      lastPrepared += 1;
      await prepareTransaction(client, random, `chaos ${lastPrepared}`);
      await random.pick(duringPrepared)(cluster, random, client);
      const end = random.pick(["COMMIT", "ROLLBACK"]);
      await withConnectionTo(cluster.url, (other) => other.query(`${end} PREPARED 'chaos ${lastPrepared}'`));
    },
  },
  {
    // Its managers go on after others have taken over.
    name: "a process is frozen and goes on",
    weight: 3,
    inject: async (cluster, random) =>
      await cluster.freezeProcess(random.below(cluster.size), random.below(maxFrozenMs)),
  },
  {
    name: "a process is killed behind a cut network, and its backends live on",
    weight: 3,
    inject: async (cluster, random) => {
      cluster.first.network.freeze(random.pick(["pg_task ", "pg_"]));
      await sleep(random.below(maxUnwrittenMs));
      await cluster.restartProcess(random.below(cluster.size), "SIGKILL");
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
  { name: "a connection goes silent", weight: 3, inject: silence("first") },
  { name: "silent connections break", weight: 3, inject: breakSilent("first") },
  { name: "the server is shut down fast", weight: 1, inject: restartServer("first", "SIGINT") },
  { name: "the server is shut down at once", weight: 1, inject: restartServer("first", "SIGQUIT") },
  { name: "the server is killed", weight: 1, inject: restartServer("first", "SIGKILL") },
];

/** Faults of the second server, and of the network to it. */
export const remoteFaults: readonly Fault[] = [
  {
    name: "backends of the second server are terminated",
    weight: 5,
    inject: async (cluster, random) =>
      await withConnectionTo(cluster.second.url, (client) => terminate("pg_task %", 2)(cluster, random, client)),
  },
  {
    name: "a process is killed behind a cut network to the second server, whose backends live on",
    weight: 4,
    inject: async (cluster, random) => {
      cluster.second.network.freeze("");
      await sleep(random.below(maxUnwrittenMs));
      await cluster.restartProcess(random.below(cluster.size), "SIGKILL");
    },
  },
  { name: "a connection to the second server goes silent", weight: 4, inject: silence("second") },
  {
    name: "all connections to the second server go silent",
    weight: 3,
    inject: async ({ second }) => void second.network.freeze(""),
  },
  { name: "silent connections to the second server break", weight: 2, inject: breakSilent("second") },
  {
    name: "the second server is frozen and goes on",
    weight: 2,
    inject: async ({ second }, random) => await second.freeze(random.below(maxFrozenMs)),
  },
  { name: "the second server is shut down fast", weight: 1, inject: restartServer("second", "SIGINT") },
  { name: "the second server is shut down at once", weight: 1, inject: restartServer("second", "SIGQUIT") },
  { name: "the second server is killed", weight: 2, inject: restartServer("second", "SIGKILL") },
  {
    name: "both servers are killed",
    weight: 3,
    inject: async (cluster, random) => {
      const downMs = [random.below(maxDownMs), random.below(maxDownMs)];
      await Promise.all([cluster.first.restart("SIGKILL", downMs[0]), cluster.second.restart("SIGKILL", downMs[1])]);
    },
  },
  {
    name: "a replica of the second server takes over",
    weight: 1,
    inject: async ({ second }, random) => await second.failOver(random.below(maxDownMs)),
  },
];
