import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { ManagerView } from "../../shared/clusterStatus.js";
import {
  bucketEntries,
  durationBounds,
  metricBounds,
  type Durations,
  type TaskCounts,
} from "../../shared/statistics.js";
import { EventLoopDelay } from "./eventLoopDelay.js";
import { countConnectionsByRole, readNotificationQueue } from "../../tasks/queries/clusterProcesses.js";
import { readTableRoles } from "../../tasks/queries/roles.js";
import type { Client } from "../../shared/postgres/client.js";
import type { TableSummary } from "../api/schemas.js";
import type { ApiContext } from "../api/route.js";
import { servesTable } from "../api/status.js";
import type { WebTable } from "../data/webTable.js";
import { waitAtMost } from "../data/timeLimit.js";

/** For each value that is read from a server. */
const maxWaitMs = 2_500;

const tableLabels = ["server", "database", "schema", "table"] as const;

class PrecountedHistogram extends Histogram {
  readonly #name: string;
  readonly #help: string;
  #series: { labels: Record<string, string>; durations: Durations }[] = [];

  constructor(options: { name: string; help: string; registers: Registry[] }) {
    super({ ...options, buckets: [...metricBounds] });
    this.#name = options.name;
    this.#help = options.help;
  }

  replace(series: { labels: Record<string, string>; durations: Durations }[]): void {
    this.#series = series;
  }

  /** Called by the registry. */
  async getForPromString(): Promise<object> {
    const values = this.#series.flatMap(({ labels, durations: { counts, sum } }) => {
      const upTo = (most: number): number =>
        bucketEntries(counts)
          .filter(([bucket]) => (durationBounds[bucket] ?? Infinity) <= most)
          .reduce((total, [, count]) => total + count, 0);
      const buckets = [...metricBounds, Infinity].map((bound) => {
        const le = bound === Infinity ? "+Inf" : bound;
        return { value: upTo(bound), labels: { ...labels, le }, metricName: `${this.#name}_bucket` };
      });
      return [
        ...buckets,
        { value: sum, labels, metricName: `${this.#name}_sum` },
        { value: upTo(Infinity), labels, metricName: `${this.#name}_count` },
      ];
    });
    return { name: this.#name, help: this.#help, type: "histogram", values };
  }
}

const counters: readonly (readonly [keyof TaskCounts, string, string])[] = [
  ["started", "pg_task_started_total", "Tasks claimed and given to a session"],
  ["done", "pg_task_finished_total", "Runs that ended without error"],
  [
    "failed",
    "pg_task_failed_total",
    "Runs that ended with an error, including those that are retried, and tasks that reached the crash limit",
  ],
  ["gone", "pg_task_gone_total", "Tasks that became GONE"],
  ["held", "pg_task_held_total", "Tasks that were found to wait for others"],
  ["released", "pg_task_released_total", "Tasks that waited for others, which have ended as needed"],
  ["rescued", "pg_task_rescued_total", "Orphaned tasks that were rescued"],
  ["rescues", "pg_task_rescues_total", "Rescues of one or more orphaned tasks"],
  ["reconnects", "pg_task_reconnects_total", "Reconnections of the manager"],
];

const durations = {
  claims: ["pg_task_claim_seconds", "Round trips that claimed tasks, in seconds"],
  runs: ["pg_task_run_seconds", "Runs of tasks from start to stop, in seconds"],
  waits: ["pg_task_queue_wait_seconds", "Times from the planned time of a run to its start, in seconds"],
} as const;

const eventLoopDelayHelp = "of the main thread's event loop delays since the last scrape";

const gauges = {
  leader: ["pg_task_leader", "1 if this process leads the cluster"],
  ready: ["pg_task_ready", "1 if this process is ready"],
  managerUp: ["pg_task_manager_up", "1 if this process serves the table", tableLabels],
  running: ["pg_task_running", "Running tasks", tableLabels],
  overruns: ["pg_task_overruns", "Running tasks that have taken longer than pg_task.slow", tableLabels],
  sessions: ["pg_task_sessions", "Open executor sessions", tableLabels],
  shareRunning: ["pg_task_share_running", "Running tasks of a share (pg_task.share)", [...tableLabels, "share"]],
  sessionLimit: ["pg_task_sessions_max", "Limit of executor sessions in this process (pg_conf.max)"],
  sessionReserve: [
    "pg_task_sessions_reserve",
    "Sessions that groups (or shares) with running tasks leave to others (pg_conf.reserve), at most a quarter of a table's",
  ],
  tasks: ["pg_task_tasks", "Rows by state; none if the number is unknown", [...tableLabels, "state"]],
  estimated: [
    "pg_task_tasks_estimated",
    "1 if the number of rows in the state is an estimate or unknown",
    [...tableLabels, "state"],
  ],
  backlog: ["pg_task_backlog", "Due tasks that wait; at least, if there are more than 10,000", tableLabels],
  owed: [
    "pg_task_owed",
    "Schedules whose next run could not be planned yet, because the server rejects it",
    tableLabels,
  ],
  oldestDue: [
    "pg_task_oldest_due_seconds",
    "How long the oldest due task has been due, without those of paused groups; 0 if there is none",
    tableLabels,
  ],
  paused: [
    "pg_task_paused",
    "1 for each paused group; the group is empty if the whole table is paused",
    [...tableLabels, "group"],
  ],
  webhookWaiting: [
    "pg_task_webhook_waiting",
    "Ends of tasks that the webhook has not accepted yet",
    [...tableLabels, "webhook"],
  ],
  webhookFailures: [
    "pg_task_webhook_failures",
    "How many requests to the webhook have failed in a row",
    [...tableLabels, "webhook"],
  ],
  connections: [
    "pg_task_connections",
    "Connections of all pg-task processes to the database",
    ["server", "database", "role"],
  ],
  notificationQueue: [
    "pg_task_notification_queue_usage",
    "How full the server's queue of notifications is, from 0 to 1",
    ["server"],
  ],
  roleSessions: ["pg_task_role_sessions", "Sessions of a role, in a table with users", [...tableLabels, "role"]],
  roleProblem: [
    "pg_task_role_problem",
    "1 if no task of the role can run, in a table with users",
    [...tableLabels, "role"],
  ],
  scrapeErrors: ["pg_task_scrape_error", "1 if the table's numbers could not be read", tableLabels],
  p50: ["pg_task_event_loop_delay_p50_seconds", `Median ${eventLoopDelayHelp}`],
  p99: ["pg_task_event_loop_delay_p99_seconds", `99th percentile ${eventLoopDelayHelp}`],
  max: ["pg_task_event_loop_delay_max_seconds", `Maximum ${eventLoopDelayHelp}`],
  memory: ["process_resident_memory_bytes", "Resident memory of the process"],
  startTime: ["process_start_time_seconds", "When the process started, in seconds since 1970"],
  buildInfo: ["pg_task_build_info", "1, with the versions of pg-task and of Node.js as labels", ["version", "node"]],
} as const satisfies Readonly<Record<string, readonly [name: string, help: string, labelNames?: readonly string[]]>>;

function mapValues<K extends string, V, T>(object: Readonly<Record<K, V>>, convert: (value: V) => T): Record<K, T> {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the keys stay
  return Object.fromEntries(Object.entries<V>(object).map(([key, value]) => [key, convert(value)])) as Record<K, T>;
}

interface Measured extends Pick<ApiContext, "cluster" | "tables" | "maxSessions" | "version"> {
  readonly reserve: () => number;
}

export class Metrics {
  readonly #measured: Measured;
  readonly #registry = new Registry();
  readonly #registers = [this.#registry];
  readonly #eventLoopDelay = new EventLoopDelay();
  readonly #counters = counters.map(([key, name, help]) => ({
    key,
    counter: new Counter({ name, help, labelNames: tableLabels, registers: this.#registers }),
  }));
  readonly #retries = new Counter({
    name: "pg_task_retries_total",
    help: "Retries by class of SQLSTATE",
    labelNames: [...tableLabels, "class"],
    registers: this.#registers,
  });
  readonly #webhooks = new Counter({
    name: "pg_task_webhook_ends_total",
    help: "Ends of tasks that a webhook has accepted, has not accepted (failed, at each try), or is not told any more (dropped)",
    labelNames: [...tableLabels, "webhook", "outcome"],
    registers: this.#registers,
  });
  readonly #cpu = new Counter({
    name: "process_cpu_seconds_total",
    help: "CPU time of the process",
    registers: this.#registers,
  });
  readonly #durations = mapValues(
    durations,
    ([name, help]) => new PrecountedHistogram({ name, help, registers: this.#registers }),
  );
  readonly #gauges = mapValues(
    gauges,
    ([name, help, labelNames = []]) => new Gauge<string>({ name, help, labelNames, registers: this.#registers }),
  );

  constructor(measured: Measured) {
    this.#measured = measured;
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  async text(): Promise<string> {
    const tables = this.#measured.tables.all;
    const summaries = await Promise.all(
      tables.map(async (table) => ({
        table,
        summary: await table.summary().catch(() => null),
      })),
    );
    const answered = summaries.flatMap(({ table, summary }) => (summary === null ? [] : [table]));
    const [connections, queues, roles] = await Promise.all([
      readConnectionsByRole(answered),
      readOnce(answered, ({ server }) => server, readNotificationQueue),
      readRoles(answered),
    ]);
    // There must be no `await` between the reset and the snapshot, or a concurrent scrape would get only some of the
    // values.
    this.#registry.resetMetrics();
    this.#setProcess();
    this.#setManagers();
    for (const { table, summary } of summaries) this.#setTable(table, summary);
    for (const { labels, number } of connections) this.#gauges.connections.set(labels, number);
    for (const { names, value } of queues) this.#gauges.notificationQueue.set({ server: names.server }, value.usage);
    for (const { labels, sessions, problem } of roles) {
      this.#gauges.roleSessions.set(labels, sessions);
      this.#gauges.roleProblem.set(labels, problem === null ? 0 : 1);
    }
    return await this.#registry.metrics();
  }

  close(): void {
    this.#eventLoopDelay.stop();
  }

  #setProcess(): void {
    this.#gauges.leader.set(this.#measured.cluster.role === "leader" ? 1 : 0);
    this.#gauges.ready.set(this.#measured.cluster.ready ? 1 : 0);
    this.#gauges.sessionLimit.set(this.#measured.maxSessions());
    this.#gauges.sessionReserve.set(this.#measured.reserve());
    this.#gauges.memory.set(process.memoryUsage.rss());
    const { user, system } = process.cpuUsage();
    this.#cpu.inc((user + system) / 1e6);
    this.#gauges.startTime.set(performance.timeOrigin / 1000);
    this.#gauges.buildInfo.set({ version: this.#measured.version, node: process.versions.node }, 1);
    const delay = this.#eventLoopDelay.take();
    for (const name of ["p50", "p99", "max"] as const) {
      // The reset has set it to 0, which would be a wrong value if nothing was measured.
      if (delay === null) this.#gauges[name].remove();
      else this.#gauges[name].set(delay[name]);
    }
  }

  #setManagers(): void {
    const managed = this.#measured.tables.all.flatMap((table) => {
      const view = this.#measured.cluster.manager(table.key);
      this.#gauges.managerUp.set(table.names, servesTable(view) ? 1 : 0);
      return view === null ? [] : [{ labels: table.names, view }];
    });
    for (const { labels, view } of managed) this.#setManager(labels, view);
    for (const name of ["claims", "runs", "waits"] as const) {
      this.#durations[name].replace(managed.map(({ labels, view }) => ({ labels, durations: view[name] })));
    }
  }

  #setManager(labels: WebTable["names"], view: ManagerView): void {
    for (const { key, counter } of this.#counters) counter.inc(labels, view.counts[key]);
    for (const [key, count] of Object.entries(view.retries)) this.#retries.inc({ ...labels, class: key }, count);
    for (const [webhook, counts] of Object.entries(view.webhooks))
      for (const [outcome, count] of Object.entries(counts)) this.#webhooks.inc({ ...labels, webhook, outcome }, count);
    this.#gauges.running.set(labels, view.running);
    this.#gauges.overruns.set(labels, view.overruns);
    this.#gauges.sessions.set(labels, view.sessions);
    for (const [share, count] of Object.entries(view.shares))
      this.#gauges.shareRunning.set({ ...labels, share }, count);
  }

  #setTable({ names }: WebTable, summary: TableSummary | null): void {
    this.#gauges.scrapeErrors.set(names, summary === null ? 1 : 0);
    if (summary === null) return;
    for (const [state, count] of Object.entries(summary.states)) {
      if (count.value !== null) this.#gauges.tasks.set({ ...names, state }, count.value);
      this.#gauges.estimated.set({ ...names, state }, count.exact ? 0 : 1);
    }
    this.#gauges.backlog.set(names, summary.due.value ?? summary.due.least);
    this.#gauges.owed.set(names, summary.owed);
    this.#gauges.oldestDue.set(names, (summary.oldestUnpausedMs ?? 0) / 1000);
    for (const { name: webhook, waiting, failures } of summary.webhooks) {
      this.#gauges.webhookWaiting.set({ ...names, webhook }, waiting);
      this.#gauges.webhookFailures.set({ ...names, webhook }, failures);
    }
    for (const { group } of summary.paused) this.#gauges.paused.set({ ...names, group: group ?? "" }, 1);
  }
}

const databaseKey = ({ server, database }: WebTable["names"]): string => `${server} ${database}`;

async function readConnectionsByRole(
  tables: readonly WebTable[],
): Promise<{ labels: Record<"server" | "database" | "role", string>; number: number }[]> {
  const databases = await readOnce(tables, databaseKey, countConnectionsByRole);
  return databases.flatMap(({ names: { server, database }, value: roles }) =>
    roles.map(({ role, connections: number }) => ({ labels: { server, database, role }, number })),
  );
}

/** Of the tables with users. */
async function readRoles(tables: readonly WebTable[]) {
  const found = await Promise.all(
    tables
      .filter(({ entry }) => entry.users)
      .map(async ({ names, pool, table }) => {
        const query = pool.read((client) => readTableRoles(client, table)).catch(() => null);
        const roles = (await waitAtMost(maxWaitMs, query, null)) ?? [];
        return roles.map(({ role, sessions, problem }) => ({ labels: { ...names, role }, sessions, problem }));
      }),
  );
  return found.flat();
}

/** Reads through one table of each key. Leaves out failures. */
async function readOnce<T>(
  tables: readonly WebTable[],
  keyOf: (names: WebTable["names"]) => string,
  read: (client: Client) => Promise<T>,
): Promise<{ readonly names: WebTable["names"]; readonly value: T }[]> {
  const byKey = new Map(tables.map((table) => [keyOf(table.names), table]));
  const results = await Promise.all(
    [...byKey.values()].map(async ({ pool, names }) => {
      const query = pool.read(read).then(
        (value) => ({ names, value }),
        () => null,
      );
      return await waitAtMost(maxWaitMs, query, null);
    }),
  );
  return results.filter((result) => result !== null);
}
