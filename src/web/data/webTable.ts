import { createHash } from "node:crypto";
import { taskTable, type TaskTable } from "../../manager/schema/taskTable.js";
import type { Entry } from "../../shared/config/types.js";
import { readBacklog } from "../../tasks/queries/backlog.js";
import { readLatencies } from "../../tasks/queries/latencies.js";
import { readPauses } from "../../tasks/commands/pauses.js";
import { readRowCounts } from "../../tasks/queries/rowCounts.js";
import { Connections } from "./connectionPool.js";
import { History } from "./history.js";
import type { Summary } from "../api/schemas.js";
import { WebProblem } from "../errors.js";
import { inTime } from "./timeLimit.js";
import { ChangeFeed } from "./changeFeed.js";

/** A summary is asked for so often at most, however many look, in ms. */
const freshMs = 1_000;
/** How long a summary is waited for, in ms: who asks for all tables is not kept waiting by one. */
const patienceMs = 2_500;

/** A summary that was asked for; the times are those of `performance.now()`. */
interface Asked {
  readonly at: number;
  readonly answer: Promise<Summary>;
  /** Infinity before. */
  endedAt: number;
}

/** A task table as the web sees it. */
export class WebTable {
  /** Names it in paths: the same for the same entry, whatever else is configured. */
  readonly id: string;
  readonly key: string;
  readonly entry: Entry;
  readonly names: {
    readonly server: string;
    readonly database: string;
    readonly schema: string;
    readonly table: string;
  };
  readonly table: TaskTable;
  readonly connections: Connections;
  readonly watch: ChangeFeed;
  readonly history: History;
  #asked: Asked | null = null;

  constructor(entry: Entry, history = new History()) {
    const { target, schema, table } = entry;
    this.id = createHash("sha256").update(entry.key).digest("hex").slice(0, 8);
    this.key = entry.key;
    this.entry = entry;
    this.names = {
      server: target.host.startsWith("/") ? target.host : `${target.host}:${target.port}`,
      database: target.database,
      schema,
      table,
    };
    this.table = taskTable(schema, table);
    this.connections = new Connections(target);
    this.watch = new ChangeFeed(target, this.table);
    this.history = history;
  }

  /** @throws WebProblem, UNAVAILABLE when it takes longer than 2.5 seconds; what the server says */
  async summary(): Promise<Summary> {
    const now = performance.now();
    if (this.#asked === null || now - this.#asked.endedAt > freshMs) this.#asked = this.#begin(now);
    const { answer, at } = this.#asked;
    const summary = await inTime(at + patienceMs - now, answer, null);
    if (summary === null) throw new WebProblem("UNAVAILABLE", "the server has not answered yet");
    return summary;
  }

  async close(): Promise<void> {
    await Promise.all([this.connections.close(), this.watch.close()]);
  }

  #begin(at: number): Asked {
    const asked: Asked = { at, answer: this.#ask(), endedAt: Infinity };
    const end = (): void => {
      asked.endedAt = performance.now();
      // Nobody waited for it: whoever watches asks again.
      if (asked.endedAt > at + patienceMs) this.watch.touch();
    };
    asked.answer.then(end, end);
    return asked;
  }

  async #ask(): Promise<Summary> {
    return await this.connections.read(async (client) => {
      const { rows, states } = await readRowCounts(client, this.table);
      const { due, planned, oldestDueMs } = await readBacklog(client, this.table);
      const latency = await readLatencies(client, this.table);
      const paused = await readPauses(client, this.table);
      this.history.sample(due.value);
      const PLAN = { value: due.value + planned.value, exact: due.exact && planned.exact };
      return {
        rows,
        states: rows.exact ? states : { ...states, PLAN },
        due,
        oldestDueMs,
        ...latency,
        paused,
      };
    });
  }
}
