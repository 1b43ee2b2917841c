import type { Client } from "../../src/shared/postgres/client.js";
import { announceChanges, eventually, until } from "./changes.js";

/** A task's row, as far as tests look at it. Times are ISO 8601 in UTC, so they compare as text. */
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

/** What a row can be given at its insert; what is left out gets the column's default. */
export interface NewTask {
  readonly input: string;
  readonly [column: string]: string | number | boolean | null;
}

/** The task table of a test database, seen from a user's connection. */
export class Tasks {
  readonly client: Client;

  private constructor(client: Client) {
    this.client = client;
  }

  /** Makes the table announce its changes, so that tests can await them. */
  static async of(client: Client): Promise<Tasks> {
    await announceChanges(client);
    return new Tasks(client);
  }

  /** Inserts tasks in one statement each; returns their ids. */
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

  /** The rows of these tasks, by id, once all of them are as wanted. */
  async until(ids: readonly string[], wanted: (row: TaskRow) => boolean): Promise<TaskRow[]> {
    return await until<TaskRow>(
      this.client,
      select(ids),
      (rows) => rows.length === ids.length && rows.every(wanted),
    );
  }

  /** The rows of these tasks, by id, once all have come to an end. */
  async ended(...ids: readonly string[]): Promise<TaskRow[]> {
    return await this.until(ids, (row) => hasEnded(row));
  }

  /** Inserts one task and waits for its end. */
  async run(input: string, more: Omit<NewTask, "input"> = {}): Promise<TaskRow> {
    const ids = await this.insert({ input, ...more });
    return only(await this.ended(...ids));
  }

  async running(id: string): Promise<TaskRow> {
    return only(await this.until([id], (row) => row.state === "WORK"));
  }

  /** Resolves when these rows are there no more. */
  async removed(...ids: readonly string[]): Promise<void> {
    await until<TaskRow>(this.client, select(ids), (rows) => rows.length === 0);
  }

  /** As `running`, once its server process is at its `pg_sleep(60)`, so that a cancel finds it there. */
  async underway(id: string): Promise<TaskRow> {
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

export function hasEnded(row: TaskRow): boolean {
  return !["PLAN", "TAKE", "WORK"].includes(row.state);
}

/** The one element of a list that must have exactly one. */
export function only<T>(list: readonly T[]): T {
  const [first] = list;
  if (list.length !== 1 || first === undefined) throw new Error(`expected one, got ${list.length}`);
  return first;
}

/** The most of these that ran at any one moment. */
export function mostAtOnce(rows: readonly TaskRow[]): number {
  const starts = rows.flatMap((row) => row.start ?? []);
  return Math.max(
    0,
    ...starts.map(
      (moment) =>
        rows.filter(
          ({ start, stop }) => start !== null && stop !== null && start <= moment && moment < stop,
        ).length,
    ),
  );
}
