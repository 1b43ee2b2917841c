import { createHash } from "node:crypto";
import { readOpenTurns } from "../../tasks/queries/tableFacts.js";
import { readWebhooks } from "../../tasks/queries/webhooks.js";
import { countOwed } from "../../manager/schema/owedTable.js";
import { taskTable, type TaskTable } from "../../manager/schema/taskTable.js";
import type { Entry } from "../../shared/config/types.js";
import { serverLabel, serversOf, type ConnectionTarget } from "../../shared/postgres/target/target.js";
import { readBacklog, readLatencies, readOldestUnpaused, readRowCounts } from "../../tasks/queries/counts.js";
import { readPauses } from "../../tasks/pauses.js";
import { readGroups, type Groups } from "../../tasks/queries/groups.js";
import { readErrorGroups, type ErrorGroups, readHourlyRuns, type RunHistory } from "../../tasks/queries/history.js";
import { ConnectionPool } from "./connectionPool.js";
import { History } from "./history.js";
import type { GroupQuery, TableSummary } from "../api/schemas.js";
import { ApiError } from "../errors.js";
import { waitAtMost } from "./timeLimit.js";
import { ChangeFeed } from "./changeFeed.js";

/** In ms. */
const cacheMs = 1_000;
/** In ms. Keeps one slow table from delaying the list of all tables. */
const maxWaitMs = 2_500;

/** How long one request can scan rows, in ms. */
const scanMs = 2_000;
/** How long the results are kept, in ms. */
const errorsMs = 10_000;
const runsMs = 60_000;

function endAfter(ms: number): () => boolean {
  const end = performance.now() + ms;
  return () => performance.now() > end;
}

export const serverNames = (target: ConnectionTarget): string =>
  serversOf(target)
    .map((server) => (server.host.startsWith("/") ? server.host : serverLabel(server)))
    .join(",");

/** Times are values of `performance.now()`. */
interface SummaryRequest {
  readonly startedAt: number;
  readonly summary: Promise<TableSummary>;
  /** Infinity while the request is pending. */
  endedAt: number;
}

interface WebTableOptions {
  readonly isControl: boolean;
  readonly history?: History | undefined;
  readonly refusal: string | null;
}

export class WebTable {
  /** Depends only on the entry. */
  readonly id: string;
  readonly key: string;
  readonly entry: Entry;
  readonly names: Readonly<Record<"server" | "database" | "schema" | "table", string>>;
  readonly table: TaskTable;
  readonly pool: ConnectionPool;
  readonly changes: ChangeFeed;
  readonly history: History;
  readonly #errorGroups = new Cached<ErrorGroups>(errorsMs);
  readonly #runHistory = new Cached<RunHistory>(runsMs);
  readonly #groups = new Cached<Groups>(0);
  #request: SummaryRequest | null = null;

  /** Why nothing may connect to its database. Null if it may. */
  readonly refusal: string | null;

  /** @param options.isControl whether the entry has the control connection's target */
  constructor(entry: Entry, { isControl, history = new History(), refusal }: WebTableOptions) {
    const { target, schema, table } = entry;
    this.id = createHash("sha256").update(entry.key).digest("hex").slice(0, 8);
    this.key = entry.key;
    this.entry = entry;
    this.names = { server: serverNames(target), database: target.database, schema, table };
    this.table = taskTable(schema, table);
    this.refusal = refusal;
    this.pool = new ConnectionPool(target, { isControl, refusal });
    this.changes = new ChangeFeed(target, this.table, refusal === null);
    this.history = history;
  }

  /** @throws ApiError UNAVAILABLE after 2.5 seconds; any other error of the query */
  async summary(): Promise<TableSummary> {
    const now = performance.now();
    if (this.#request === null || now - this.#request.endedAt > cacheMs) {
      this.#request = this.#startRequest(now);
    }
    const { summary: pending, startedAt } = this.#request;
    const summary = await waitAtMost(startedAt + maxWaitMs - now, pending, null);
    if (summary === null) throw new ApiError("UNAVAILABLE", "the server has not answered in time");
    return summary;
  }

  forgetSummary(): void {
    this.#request = null;
    this.#groups.clear();
  }

  async errorGroups(limit: number): Promise<ErrorGroups> {
    return await this.#errorGroups.get(String(limit), () =>
      this.pool.read((client) => readErrorGroups(client, this.table, limit, endAfter(scanMs))),
    );
  }

  async runHistory(hours: number): Promise<RunHistory> {
    return await this.#runHistory.get(String(hours), () =>
      this.pool.read((client) => readHourlyRuns(client, this.table, hours, endAfter(scanMs))),
    );
  }

  /** @throws ApiError INVALID */
  async groups(query: GroupQuery): Promise<Groups> {
    if (query.after !== undefined && query.order !== "name") {
      throw new ApiError("INVALID", "after: only with order=name, because the other order changes all the time");
    }
    return await this.#groups.get(JSON.stringify(query), () =>
      this.pool.read((client) => readGroups(client, this.table, { ...query, ended: true })),
    );
  }

  async close(): Promise<void> {
    await Promise.all([this.pool.close(), this.changes.close()]);
  }

  #startRequest(startedAt: number): SummaryRequest {
    const request: SummaryRequest = { startedAt, summary: this.#readSummary(), endedAt: Infinity };
    const end = (): void => {
      request.endedAt = performance.now();
      // If the callers stopped waiting before the summary arrived, a change is reported, so that open pages request the
      // summary again.
      if (request.endedAt > startedAt + maxWaitMs) this.changes.noteChange();
    };
    request.summary.then(end, end);
    return request;
  }

  async #readSummary(): Promise<TableSummary> {
    return await this.pool.read(async (client) => {
      const backlog = await readBacklog(client, this.table);
      const { due, oldestDueMs } = backlog;
      const counts = await readRowCounts(client, this.table, backlog);
      const latency = this.history.latencies() ?? (await readLatencies(client, this.table));
      const paused = await readPauses(client, this.table);
      const owed = await countOwed(client, this.table);
      const turns = await readOpenTurns(client, this.table);
      const webhooks = await readWebhooks(client, this.table);
      const oldestUnpausedMs = paused.length === 0 ? oldestDueMs : await readOldestUnpaused(client, this.table);
      this.history.setDue(due.value ?? due.least);
      return { ...counts, due, oldestDueMs, oldestUnpausedMs, ...latency, owed, paused, turns, webhooks };
    });
  }
}

/**
 * Keeps the last result for each key, so that several readers share the work. A failure is not kept. A result that took
 * long is kept longer, so that the server is at most a tenth of the time at work.
 */
class Cached<T> {
  readonly #keepMs: number;
  readonly #entries = new Map<string, { readonly result: Promise<T>; endedAt: number; keepMs: number }>();

  /** @param keepMs at least, counted from the arrival of a result */
  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  clear(): void {
    this.#entries.clear();
  }

  async get(key: string, read: () => Promise<T>): Promise<T> {
    const now = performance.now();
    for (const [each, { endedAt, keepMs }] of this.#entries) if (now - endedAt > keepMs) this.#entries.delete(each);
    const known = this.#entries.get(key);
    if (known !== undefined) return await known.result;
    const entry = { result: read(), endedAt: Infinity, keepMs: this.#keepMs };
    this.#entries.set(key, entry);
    try {
      return await entry.result;
    } catch (error) {
      this.#entries.delete(key);
      throw error;
    } finally {
      entry.endedAt = performance.now();
      entry.keepMs = Math.max(this.#keepMs, 10 * (entry.endedAt - now));
    }
  }
}
