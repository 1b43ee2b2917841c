import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { ClusterView, ManagerView } from "../../shared/clusterStatus.js";
import { durationBounds, type Durations, type TaskCounts } from "../../shared/statistics.js";
import { LoopDelay } from "./eventLoopDelay.js";
import { serverConnections } from "../../tasks/queries/connectionsByRole.js";
import type { Summary } from "../api/schemas.js";
import type { WebTable } from "../data/webTable.js";
import type { WebTables } from "../data/webTables.js";
import { inTime } from "../data/timeLimit.js";

/** How long a scrape waits for the numbers of connections, in ms. */
const patienceMs = 2_500;

const tableLabels = ["server", "database", "schema", "table"] as const;

/** A histogram whose buckets somebody else has counted. */
class CountedHistogram extends Histogram {
  readonly #name: string;
  readonly #help: string;
  #counted: { labels: Record<string, string>; durations: Durations }[] = [];

  constructor(options: { name: string; help: string; registers: Registry[] }) {
    super({ ...options, buckets: [...durationBounds] });
    this.#name = options.name;
    this.#help = options.help;
  }

  /** Each set of labels has these counts now. */
  replace(counted: { labels: Record<string, string>; durations: Durations }[]): void {
    this.#counted = counted;
  }

  /** What the registry asks for when it makes its text. */
  async getForPromString(): Promise<object> {
    const values = this.#counted.flatMap(({ labels, durations: { counts, sum } }) => {
      let below = 0;
      const buckets = counts.map((count, bucket) => {
        below += count;
        const le = durationBounds[bucket] ?? "+Inf";
        return { value: below, labels: { ...labels, le }, metricName: `${this.#name}_bucket` };
      });
      return [
        ...buckets,
        { value: sum, labels, metricName: `${this.#name}_sum` },
        { value: below, labels, metricName: `${this.#name}_count` },
      ];
    });
    return { name: this.#name, help: this.#help, type: "histogram", values };
  }
}

const counters: readonly (readonly [keyof TaskCounts, string, string])[] = [
  ["started", "pg_task_started_total", "Tasks given to a session"],
  ["done", "pg_task_finished_total", "Tasks that ended without error"],
  ["failed", "pg_task_failed_total", "Tasks that ended with an error"],
  ["gone", "pg_task_gone_total", "Tasks not run since they were not active any more"],
  ["rescued", "pg_task_rescued_total", "Orphaned tasks that were rescued"],
  ["rescues", "pg_task_rescues_total", "Times that orphaned tasks were rescued"],
  ["reconnects", "pg_task_reconnects_total", "Times that a manager's connection was opened again"],
];

/** Everything Prometheus is told. What needs a query is asked when it is scraped. */
export class Metrics {
  readonly #cluster: ClusterView;
  readonly #tables: WebTables;
  readonly #mostSessions: () => number;
  readonly #registry = new Registry();
  readonly #delay = new LoopDelay();
  readonly #counters: readonly (readonly [keyof TaskCounts, Counter])[];
  readonly #claims = this.#histogram("pg_task_claim_seconds", "Round trips that claimed tasks");
  readonly #runs = this.#histogram("pg_task_run_seconds", "Runs of tasks, from start to stop");
  readonly #leader = this.#gauge("pg_task_leader", "1 when this process leads");
  readonly #ready = this.#gauge("pg_task_ready", "1 when this process is ready");
  readonly #manager = this.#gauge("pg_task_manager_up", "1 when the table's manager works here", [
    ...tableLabels,
  ]);
  readonly #running = this.#gauge("pg_task_running", "Tasks that run now", [...tableLabels]);
  readonly #sessions = this.#gauge("pg_task_sessions", "Executor sessions that are open", [
    ...tableLabels,
  ]);
  readonly #most = this.#gauge("pg_task_sessions_max", "Most executor sessions of this process");
  readonly #tasks = this.#gauge("pg_task_tasks", "Rows by state; estimated in large tables", [
    ...tableLabels,
    "state",
  ]);
  readonly #backlog = this.#gauge("pg_task_backlog", "Tasks that are due and wait", [
    ...tableLabels,
  ]);
  readonly #oldest = this.#gauge(
    "pg_task_oldest_due_seconds",
    "How long the longest due task waits, 0 without one",
    [...tableLabels],
  );
  readonly #connections = this.#gauge(
    "pg_task_connections",
    "Connections of pg-task's that the database has, of all its processes",
    ["server", "database", "role"],
  );
  readonly #scrapeErrors = this.#gauge(
    "pg_task_scrape_error",
    "1 when the table's numbers could not be had",
    [...tableLabels],
  );
  readonly #loop = this.#gauge(
    "pg_task_event_loop_delay_seconds",
    "How late the main thread's event loop was since the last scrape",
    ["quantile"],
  );
  readonly #memory = this.#gauge("process_resident_memory_bytes", "Resident memory of the process");
  readonly #cpu = this.#gauge("process_cpu_seconds_total", "CPU time of the process");

  constructor(parts: {
    readonly cluster: ClusterView;
    readonly tables: WebTables;
    readonly mostSessions: () => number;
  }) {
    this.#cluster = parts.cluster;
    this.#tables = parts.tables;
    this.#mostSessions = parts.mostSessions;
    this.#counters = counters.map(([what, name, help]) => [
      what,
      new Counter({ name, help, labelNames: tableLabels, registers: [this.#registry] }),
    ]);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** The whole of it as text. */
  async text(): Promise<string> {
    const tables = this.#tables.all;
    const summaries = await Promise.all(
      tables.map(async (table) => ({
        table,
        summary: await table.summary().catch(() => null),
      })),
    );
    const answering = summaries.flatMap(({ table, summary }) => (summary === null ? [] : [table]));
    const connections = await serverConnectionsOf(answering);
    // Whoever else scrapes does so at once: nobody gets half of the numbers.
    this.#registry.resetMetrics();
    this.#process();
    this.#managers();
    for (const { table, summary } of summaries) this.#table(table, summary);
    for (const { labels, number } of connections) this.#connections.set(labels, number);
    return await this.#registry.metrics();
  }

  close(): void {
    this.#delay.stop();
  }

  #process(): void {
    this.#leader.set(this.#cluster.role === "leader" ? 1 : 0);
    this.#ready.set(this.#cluster.ready ? 1 : 0);
    this.#most.set(this.#mostSessions());
    this.#memory.set(process.memoryUsage.rss());
    const { user, system } = process.cpuUsage();
    this.#cpu.set((user + system) / 1e6);
    const delay = this.#delay.take();
    if (delay === null) return;
    this.#loop.set({ quantile: "0.5" }, delay.p50);
    this.#loop.set({ quantile: "0.99" }, delay.p99);
    this.#loop.set({ quantile: "1" }, delay.max);
  }

  #managers(): void {
    const managed = this.#tables.all.flatMap((table) => {
      const view = this.#cluster.manager(table.key);
      this.#manager.set(table.names, view?.state === "working" ? 1 : 0);
      return view === null ? [] : [{ labels: table.names, view }];
    });
    for (const { labels, view } of managed) this.#managerNumbers(labels, view);
    this.#claims.replace(managed.map(({ labels, view }) => ({ labels, durations: view.claims })));
    this.#runs.replace(managed.map(({ labels, view }) => ({ labels, durations: view.runs })));
  }

  #managerNumbers(labels: WebTable["names"], view: ManagerView): void {
    for (const [what, counter] of this.#counters) counter.inc(labels, view.counts[what]);
    this.#running.set(labels, view.running);
    this.#sessions.set(labels, view.sessions);
  }

  #table({ names }: WebTable, summary: Summary | null): void {
    this.#scrapeErrors.set(names, summary === null ? 1 : 0);
    if (summary === null) return;
    for (const [state, count] of Object.entries(summary.states)) {
      this.#tasks.set({ ...names, state }, count.value);
    }
    this.#backlog.set(names, summary.due.value);
    this.#oldest.set(names, oldestSeconds(summary));
  }

  #gauge(name: string, help: string, labelNames: string[] = []): Gauge {
    return new Gauge({ name, help, labelNames, registers: [this.#registry] });
  }

  #histogram(name: string, help: string): CountedHistogram {
    return new CountedHistogram({ name, help, registers: [this.#registry] });
  }
}

const oldestSeconds = ({ oldestDueMs }: Summary): number => (oldestDueMs ?? 0) / 1000;

/** Once for each database, asked through one of its tables that answer. */
async function serverConnectionsOf(
  tables: readonly WebTable[],
): Promise<{ labels: Record<"server" | "database" | "role", string>; number: number }[]> {
  const databases = new Map(
    tables.map((table) => [`${table.names.server} ${table.names.database}`, table]),
  );
  const found = await Promise.all(
    [...databases.values()].map(async ({ connections, names: { server, database } }) => {
      const asked = connections.read(serverConnections).catch(() => []);
      const roles = await inTime(patienceMs, asked, []);
      return roles.map(({ role, connections: number }) => ({
        labels: { server, database, role },
        number,
      }));
    }),
  );
  return found.flat();
}
