import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { ClusterView, ManagerView } from "../../shared/clusterStatus.js";
import { durationBounds, type Durations, type TaskCounts } from "../../shared/statistics.js";
import { EventLoopDelay } from "./eventLoopDelay.js";
import { countConnectionsByRole, readNotificationQueue } from "../../tasks/queries/clusterProcesses.js";
import type { Client } from "../../shared/postgres/client.js";
import type { TableSummary } from "../api/schemas.js";
import { servesTable } from "../api/status.js";
import type { WebTable } from "../data/webTable.js";
import type { WebTables } from "../data/webTables.js";
import { waitAtMost } from "../data/timeLimit.js";

/** How long a scrape waits for each value that it reads from a server, in ms. */
const maxWaitMs = 2_500;

const tableLabels = ["server", "database", "schema", "table"] as const;

/** A histogram of durations that the managers have already counted into buckets. */
class PrecountedHistogram extends Histogram {
  readonly #name: string;
  readonly #help: string;
  #series: { labels: Record<string, string>; durations: Durations }[] = [];

  constructor(options: { name: string; help: string; registers: Registry[] }) {
    super({ ...options, buckets: [...durationBounds] });
    this.#name = options.name;
    this.#help = options.help;
  }

  /** Replaces all series. */
  replace(series: { labels: Record<string, string>; durations: Durations }[]): void {
    this.#series = series;
  }

  /** Called by the registry. Returns the managers' counts instead of the counts of the base class. */
  async getForPromString(): Promise<object> {
    const values = this.#series.flatMap(({ labels, durations: { counts, sum } }) => {
      let cumulative = 0;
      const buckets = counts.map((count, bucket) => {
        cumulative += count;
        const le = durationBounds[bucket] ?? "+Inf";
        return { value: cumulative, labels: { ...labels, le }, metricName: `${this.#name}_bucket` };
      });
      return [
        ...buckets,
        { value: sum, labels, metricName: `${this.#name}_sum` },
        { value: cumulative, labels, metricName: `${this.#name}_count` },
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

/** All metrics. Values that need a query are read at each scrape. */
export class Metrics {
  readonly #cluster: ClusterView;
  readonly #tables: WebTables;
  readonly #maxSessions: () => number;
  readonly #reserve: () => number;
  readonly #registry = new Registry();
  readonly #eventLoopDelay = new EventLoopDelay();
  readonly #counters: readonly (readonly [keyof TaskCounts, Counter])[];
  readonly #retries = new Counter({
    name: "pg_task_retries_total",
    help: "Retries by class of SQLSTATE",
    labelNames: [...tableLabels, "class"],
    registers: [this.#registry],
  });
  readonly #claims = this.#histogram("pg_task_claim_seconds", "Round trips that claimed tasks, in seconds");
  readonly #runs = this.#histogram("pg_task_run_seconds", "Runs of tasks from start to stop, in seconds");
  readonly #waits = this.#histogram(
    "pg_task_queue_wait_seconds",
    "Times from the planned time of a run to its start, in seconds",
  );
  readonly #leader = this.#gauge("pg_task_leader", "1 if this process leads the cluster");
  readonly #ready = this.#gauge("pg_task_ready", "1 if this process is ready");
  readonly #managerUp = this.#gauge("pg_task_manager_up", "1 if this process serves the table", tableLabels);
  readonly #running = this.#gauge("pg_task_running", "Running tasks", tableLabels);
  readonly #sessions = this.#gauge("pg_task_sessions", "Open executor sessions", tableLabels);
  readonly #sessionLimit = this.#gauge(
    "pg_task_sessions_max",
    "Limit of executor sessions in this process (pg_conf.max)",
  );
  readonly #sessionReserve = this.#gauge(
    "pg_task_sessions_reserve",
    "Sessions that groups with running tasks leave to other groups (pg_conf.reserve), at most a quarter of a table's",
  );
  readonly #tasks = this.#gauge("pg_task_tasks", "Rows by state, estimated for large tables", [
    ...tableLabels,
    "state",
  ]);
  readonly #backlog = this.#gauge("pg_task_backlog", "Due tasks that wait", tableLabels);
  readonly #owed = this.#gauge(
    "pg_task_owed",
    "Schedules whose next run could not be planned yet, because the server rejects it",
    tableLabels,
  );
  readonly #oldestDue = this.#gauge(
    "pg_task_oldest_due_seconds",
    "How long the oldest due task has been due; 0 if there is none",
    tableLabels,
  );
  readonly #connections = this.#gauge("pg_task_connections", "Connections of all pg-task processes to the database", [
    "server",
    "database",
    "role",
  ]);
  readonly #notificationQueue = this.#gauge(
    "pg_task_notification_queue_usage",
    "How full the server's queue of notifications is, from 0 to 1",
    ["server"],
  );
  readonly #scrapeErrors = this.#gauge(
    "pg_task_scrape_error",
    "1 if the table's numbers could not be read",
    tableLabels,
  );
  readonly #eventLoopDelays = {
    p50: this.#delay("p50", "Median"),
    p99: this.#delay("p99", "99th percentile"),
    max: this.#delay("max", "Maximum"),
  };
  readonly #memory = this.#gauge("process_resident_memory_bytes", "Resident memory of the process");
  readonly #cpu = new Counter({
    name: "process_cpu_seconds_total",
    help: "CPU time of the process",
    registers: [this.#registry],
  });
  readonly #startTime = this.#gauge("process_start_time_seconds", "When the process started, in seconds since 1970");
  readonly #buildInfo = this.#gauge("pg_task_build_info", "1, with the versions of pg-task and of Node.js as labels", [
    "version",
    "node",
  ]);
  readonly #version: string;

  constructor(options: {
    readonly cluster: ClusterView;
    readonly tables: WebTables;
    readonly maxSessions: () => number;
    readonly reserve: () => number;
    readonly version: string;
  }) {
    this.#version = options.version;
    this.#cluster = options.cluster;
    this.#tables = options.tables;
    this.#maxSessions = options.maxSessions;
    this.#reserve = options.reserve;
    this.#counters = counters.map(([key, name, help]) => [
      key,
      new Counter({ name, help, labelNames: tableLabels, registers: [this.#registry] }),
    ]);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** Returns all metrics in Prometheus' text format. */
  async text(): Promise<string> {
    const tables = this.#tables.all;
    const summaries = await Promise.all(
      tables.map(async (table) => ({
        table,
        summary: await table.summary().catch(() => null),
      })),
    );
    const answered = summaries.flatMap(({ table, summary }) => (summary === null ? [] : [table]));
    const [connections, queues] = await Promise.all([
      readConnectionsByRole(answered),
      readOnce(answered, ({ server }) => server, readNotificationQueue),
    ]);
    // There must be no `await` between the reset and the snapshot, or a concurrent scrape would get only some of the
    // values.
    this.#registry.resetMetrics();
    this.#setProcess();
    this.#setManagers();
    for (const { table, summary } of summaries) this.#setTable(table, summary);
    for (const { labels, number } of connections) this.#connections.set(labels, number);
    for (const { names, value } of queues) this.#notificationQueue.set({ server: names.server }, value.usage);
    return await this.#registry.metrics();
  }

  close(): void {
    this.#eventLoopDelay.stop();
  }

  #setProcess(): void {
    this.#leader.set(this.#cluster.role === "leader" ? 1 : 0);
    this.#ready.set(this.#cluster.ready ? 1 : 0);
    this.#sessionLimit.set(this.#maxSessions());
    this.#sessionReserve.set(this.#reserve());
    this.#memory.set(process.memoryUsage.rss());
    const { user, system } = process.cpuUsage();
    this.#cpu.inc((user + system) / 1e6);
    this.#startTime.set(performance.timeOrigin / 1000);
    this.#buildInfo.set({ version: this.#version, node: process.versions.node }, 1);
    const delay = this.#eventLoopDelay.take();
    for (const name of ["p50", "p99", "max"] as const) {
      // The reset has set it to 0, which would be a wrong value if nothing was measured.
      if (delay === null) this.#eventLoopDelays[name].remove();
      else this.#eventLoopDelays[name].set(delay[name]);
    }
  }

  #setManagers(): void {
    const managed = this.#tables.all.flatMap((table) => {
      const view = this.#cluster.manager(table.key);
      this.#managerUp.set(table.names, servesTable(view) ? 1 : 0);
      return view === null ? [] : [{ labels: table.names, view }];
    });
    for (const { labels, view } of managed) this.#setManager(labels, view);
    this.#claims.replace(managed.map(({ labels, view }) => ({ labels, durations: view.claims })));
    this.#runs.replace(managed.map(({ labels, view }) => ({ labels, durations: view.runs })));
    this.#waits.replace(managed.map(({ labels, view }) => ({ labels, durations: view.waits })));
  }

  #setManager(labels: WebTable["names"], view: ManagerView): void {
    for (const [key, counter] of this.#counters) counter.inc(labels, view.counts[key]);
    for (const [key, count] of Object.entries(view.retries)) this.#retries.inc({ ...labels, class: key }, count);
    this.#running.set(labels, view.running);
    this.#sessions.set(labels, view.sessions);
  }

  #setTable({ names }: WebTable, summary: TableSummary | null): void {
    this.#scrapeErrors.set(names, summary === null ? 1 : 0);
    if (summary === null) return;
    for (const [state, count] of Object.entries(summary.states)) {
      this.#tasks.set({ ...names, state }, count.value);
    }
    this.#backlog.set(names, summary.due.value);
    this.#owed.set(names, summary.owed);
    this.#oldestDue.set(names, oldestSeconds(summary));
  }

  #gauge(name: string, help: string, labelNames: readonly string[] = []): Gauge {
    return new Gauge({ name, help, labelNames, registers: [this.#registry] });
  }

  #delay(name: string, meaning: string): Gauge {
    return this.#gauge(
      `pg_task_event_loop_delay_${name}_seconds`,
      `${meaning} of the main thread's event loop delays since the last scrape`,
    );
  }

  #histogram(name: string, help: string): PrecountedHistogram {
    return new PrecountedHistogram({ name, help, registers: [this.#registry] });
  }
}

const oldestSeconds = ({ oldestDueMs }: TableSummary): number => (oldestDueMs ?? 0) / 1000;

const databaseKey = ({ server, database }: WebTable["names"]): string => `${server} ${database}`;

/** Reads the connection counts of each database. */
async function readConnectionsByRole(
  tables: readonly WebTable[],
): Promise<{ labels: Record<"server" | "database" | "role", string>; number: number }[]> {
  const databases = await readOnce(tables, databaseKey, countConnectionsByRole);
  return databases.flatMap(({ names: { server, database }, value: roles }) =>
    roles.map(({ role, connections: number }) => ({ labels: { server, database, role }, number })),
  );
}

/** Reads a value once for all tables with the same key, through the connections of one of them. Leaves out failures. */
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
