import type { Client } from "../../src/shared/postgres/client.js";
import { announceChanges, eventually, until } from "./changes.js";

/** The columns of a task's row that tests read. Times are in ISO 8601 and UTC, so that they can be compared as text. */
export interface TaskRow {
  readonly id: string;
  readonly parent: string | null;
  readonly plan: string;
  readonly take: string | null;
  readonly start: string | null;
  readonly stop: string | null;
  readonly pid: number | null;
  readonly crash: number;
  readonly state: string;
  readonly error: string | null;
  readonly output: string | null;
  readonly owner: string | null;
  readonly group: string;
  readonly data: string | null;
}

const time = (column: string): string =>
  `to_char(${column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') AS ${column}`;

const columns =
  `id, parent, ${["plan", "take", "start", "stop"].map(time).join(", ")}, ` +
  `pid, crash, state::text AS state, error, output, owner, "group", data`;

/** Columns of a row to insert. The other columns get their defaults. */
export interface NewTask {
  readonly input: string;
  readonly [column: string]: string | number | boolean | null;
}

/** The task table of a test database, used over a user's connection. */
export class Tasks {
  readonly client: Client;

  private constructor(client: Client) {
    this.client = client;
  }

  /** Makes the table announce its changes, so that tests can wait for changes. */
  static async create(client: Client): Promise<Tasks> {
    await announceChanges(client);
    return new Tasks(client);
  }

  /** Inserts tasks, each with a statement of its own. Returns their ids. */
  async insert(...tasks: readonly NewTask[]): Promise<string[]> {
    const ids: string[] = [];
    for (const task of tasks) {
      const names = Object.keys(task).map((name) => `"${name}"`);
      const places = names.map((_, index) => `$${index + 1}`);
      const { rows } = await this.client.query<{ id: string }>(
        `INSERT INTO task (${names.join(", ")}) VALUES (${places.join(", ")}) RETURNING id`,
        Object.values(task),
      );
      ids.push(...rows.map((row) => row.id));
    }
    return ids;
  }

  /** Waits until the rows of all these tasks satisfy the condition. Returns the rows, ordered by id. */
  async until(ids: readonly string[], wanted: (row: TaskRow) => boolean): Promise<TaskRow[]> {
    return await until<TaskRow>(this.client, select(ids), (rows) => rows.length === ids.length && rows.every(wanted));
  }

  /** Waits until all these tasks have a final state. Returns their rows, ordered by id. */
  async ended(...ids: readonly string[]): Promise<TaskRow[]> {
    return await this.until(ids, (row) => hasEnded(row));
  }

  /** Inserts one task, and waits until it has ended. Returns its row. */
  async run(input: string, more: Omit<NewTask, "input"> = {}): Promise<TaskRow> {
    const ids = await this.insert({ input, ...more });
    return only(await this.ended(...ids));
  }

  async running(id: string): Promise<TaskRow> {
    return only(await this.until([id], (row) => row.state === "WORK"));
  }

  /** Resolves when these rows are gone. */
  async removed(...ids: readonly string[]): Promise<void> {
    await until<TaskRow>(this.client, select(ids), (rows) => rows.length === 0);
  }

  /**
   * Waits until the task's backend is in `pg_sleep(60)`, so that a cancel hits it there. Returns the same as `running`.
   */
  async sleeping(id: string): Promise<TaskRow> {
    const row = await this.running(id);
    await eventually(
      this.client,
      `SELECT FROM pg_stat_activity WHERE pid = ${row.pid} AND state = 'active' AND query LIKE '%pg_sleep(60)%'`,
      (found) => found.length === 1,
    );
    return row;
  }

  async row(id: string): Promise<TaskRow> {
    return only((await this.client.query<TaskRow>(select([id]))).rows);
  }
}

function select(ids: readonly string[]): string {
  return `SELECT ${columns} FROM task WHERE id = ANY ('{${ids.join(",")}}') ORDER BY id`;
}

function hasEnded(row: TaskRow): boolean {
  return !["PLAN", "TAKE", "WORK"].includes(row.state);
}

/** Returns the element of a list, which must have exactly one element. */
export function only<T>(list: readonly T[]): T {
  const [first] = list;
  if (list.length !== 1 || first === undefined) throw new Error(`expected one, got ${list.length}`);
  return first;
}

/** Returns how many of these tasks ran at the same time, at most. */
export function maxConcurrent(rows: readonly TaskRow[]): number {
  const starts = rows.flatMap((row) => row.start ?? []);
  return Math.max(
    0,
    ...starts.map(
      (moment) =>
        rows.filter(({ start, stop }) => start !== null && stop !== null && start <= moment && moment < stop).length,
    ),
  );
}
