import { setTimeout as pause } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";

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

/** Writes rows as the manager does, which bypasses the checks of new and changed rows. */
export async function asManager(client: Client, sql: string, values?: unknown[]): Promise<void> {
  await client.query("SET pgtask.manager = on");
  await client.query(sql, values);
  await client.query("RESET pgtask.manager");
}

export async function insertTask(
  client: Client,
  input: string,
  more: Readonly<Record<string, unknown>> = {},
): Promise<string> {
  const given = { input, ...more };
  const names = Object.keys(given).map((name) => `"${name}"`);
  const places = names.map((_, index) => `$${index + 1}`);
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (${names.join(", ")}) VALUES (${places.join(", ")}) RETURNING id`,
    Object.values(given),
  );
  return only(rows).id;
}

/** A task that runs until it is let go. */
interface Gated {
  readonly id: string;
  readonly open: () => Promise<void>;
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
    for (const { input, ...more } of tasks) ids.push(await insertTask(this.client, input, more));
    return ids;
  }

  /** Inserts tasks in one transaction, so that all become due at once. Returns their ids. */
  async together(...tasks: readonly NewTask[]): Promise<string[]> {
    await this.client.query("BEGIN");
    const ids = await this.insert(...tasks);
    await this.client.query("COMMIT");
    return ids;
  }

  /** Inserts tasks in one transaction, and waits until they have ended. Returns their rows, ordered by id. */
  async runTogether(...tasks: readonly NewTask[]): Promise<TaskRow[]> {
    return await this.ended(...(await this.together(...tasks)));
  }

  /** Inserts a task, into a group of its own unless `more` names one. Returns its id. */
  async add(input: string, more: Omit<NewTask, "input"> = {}): Promise<string> {
    return only(await this.insert({ input, group: newName(), ...more }));
  }

  /** Closes a gate. Inputs with the statement `wait`, which has no output, wait there until it is opened. */
  async gate(): Promise<{ readonly wait: string; readonly open: () => Promise<void> }> {
    const key = ++names;
    await this.client.query("SELECT pg_advisory_lock(7, $1)", [key]);
    return {
      wait: `SELECT WHERE pg_advisory_xact_lock_shared(7, ${key}) IS NULL`,
      open: async () => void (await this.client.query("SELECT pg_advisory_unlock(7, $1)", [key])),
    };
  }

  /** Inserts a task without output that runs until `open` lets it end. */
  async blocker(more: Omit<NewTask, "input"> = {}): Promise<Gated> {
    const { wait, open } = await this.gate();
    return { id: await this.add(wait, more), open };
  }

  /** Inserts a task that runs until `open` lets it go on with `then`, and waits until it runs. */
  async held(more: Omit<NewTask, "input"> = {}, then = ""): Promise<Gated> {
    const { wait, open } = await this.gate();
    const id = await this.add(`${wait}; ${then}`, more);
    await this.running(id);
    return { id, open };
  }

  /** Waits until the rows of all these tasks satisfy the condition. Returns the rows, ordered by id. */
  async until(ids: readonly string[], wanted: (row: TaskRow) => boolean): Promise<TaskRow[]> {
    return await until<TaskRow>(this.client, select(ids), (rows) => rows.length === ids.length && rows.every(wanted));
  }

  /** Waits until all these tasks have a final state. Returns their rows, ordered by id. */
  async ended(...ids: readonly string[]): Promise<TaskRow[]> {
    return await this.until(ids, ({ state }) => !["PLAN", "TAKE", "WORK"].includes(state));
  }

  async end(id: string): Promise<TaskRow> {
    return only(await this.ended(id));
  }

  async released(id: string): Promise<TaskRow> {
    return only(await this.until([id], ({ owner }) => owner === null));
  }

  /** Waits until pg-task has looked up the predecessors of these tasks, and they wait on. */
  async lookedUp(...ids: readonly string[]): Promise<void> {
    const waiting = `SELECT FROM task WHERE id IN (${ids.join()}) AND wait = 0`;
    await until(this.client, waiting, (rows) => rows.length === ids.length);
  }

  /** Waits for the only successor `n` of a task `t`. Returns a list of expressions of their columns. */
  async successor<Row extends object>(id: string, list: string): Promise<Row> {
    const joined = `SELECT ${list} FROM task AS t JOIN task AS n ON n.parent = t.id WHERE t.id = ${id}`;
    return only(await until<Row>(this.client, joined, (rows) => rows.length > 0));
  }

  /** Waits for the only successor `n` of a task `t`. Returns whether the condition holds for them. */
  async successorHolds(id: string, condition: string): Promise<boolean> {
    return (await this.successor<{ holds: boolean }>(id, `${condition} AS holds`)).holds;
  }

  /** Executes a statement that returns the ids of tasks, and waits until these have ended. Returns their rows. */
  async endedOf(statement: string, parameters: readonly unknown[] = []): Promise<TaskRow[]> {
    const found = await this.rows<{ id: string }>(statement, parameters);
    return await this.ended(...found.map(({ id }) => id));
  }

  async rows<Row extends object>(statement: string, parameters: readonly unknown[] = []): Promise<Row[]> {
    return await rowsOf(this.client, statement, parameters);
  }

  /** Executes a statement that returns one value, and returns it. */
  async value<Value>(statement: string, parameters: readonly unknown[] = []): Promise<Value> {
    return await valueOf(this.client, statement, parameters);
  }

  /** Returns these columns and expressions of a task's row. */
  async fields<Row extends object>(id: string, list: string): Promise<Row> {
    return only(await this.rows<Row>(`SELECT ${list} FROM task AS t WHERE id = $1`, [id]));
  }

  async set(id: string, change: string, parameters: readonly unknown[] = []): Promise<void> {
    await this.client.query(`UPDATE task SET ${change} WHERE id = ${id}`, [...parameters]);
  }

  /** Whether a condition holds for a task. */
  async holds(id: string, condition: string): Promise<boolean> {
    return await this.value(`SELECT (${condition}) AS holds FROM task AS t WHERE id = $1`, [id]);
  }

  /** Inserts one task, and waits until it has ended. Returns its row. */
  async run(input: string, more: Omit<NewTask, "input"> = {}): Promise<TaskRow> {
    const ids = await this.insert({ input, ...more });
    return only(await this.ended(...ids));
  }

  async running(id: string): Promise<TaskRow> {
    return only(await this.until([id], (row) => row.state === "WORK"));
  }

  async removed(...ids: readonly string[]): Promise<void> {
    await until<TaskRow>(this.client, select(ids), (rows) => rows.length === 0);
  }

  /** Waits until the task's backend is in `pg_sleep(60)`, so that a cancel hits it there. */
  async sleeping(id: string): Promise<TaskRow> {
    await this.running(id);
    // If the session for which it was claimed has ended, it runs in another one.
    await eventually(
      this.client,
      `SELECT FROM task AS t JOIN pg_stat_activity AS a ON a.pid = t.pid
       WHERE t.id = ${id} AND a.state = 'active' AND a.query LIKE '%pg_sleep(60)%'`,
    );
    return await this.row(id);
  }

  async row(id: string): Promise<TaskRow> {
    return only((await this.client.query<TaskRow>(select([id]))).rows);
  }
}

const channel = "test_changes";

/** Interval at which `eventually` polls, in ms. */
const pollMs = 20;
/** A query with more rows than this is executed again only after a pause, in ms, which covers further changes. */
const many = { rows: 50, pauseMs: 20 };

const isOne = ({ length }: readonly object[]): boolean => length === 1;

/** Makes the task table notify after every statement that changes it. */
async function announceChanges(client: Client): Promise<void> {
  await client.query(`
    CREATE FUNCTION public.test_announce() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM pg_catalog.pg_notify('${channel}', ''); RETURN NULL; END $$;
    CREATE TRIGGER test_announce AFTER INSERT OR UPDATE OR DELETE ON public.task
      FOR EACH STATEMENT EXECUTE FUNCTION public.test_announce()`);
}

/**
 * Resolves with the rows of a query when they satisfy the condition. The query is executed now, and after each change
 * that `announceChanges` announces. By default, there must be one row. Only the test's own time limit ends the wait.
 */
export async function until<Row extends object>(
  client: Client,
  query: string,
  wanted: (rows: Row[]) => boolean = isOne,
): Promise<Row[]> {
  let changed = false;
  let wake: (() => void) | null = null;
  const onNotification = (): void => {
    changed = true;
    wake?.();
  };
  client.on("notification", onNotification);
  try {
    await client.query(`LISTEN ${channel}`);
    for (;;) {
      changed = false;
      const { rows } = await client.query<Row>(query);
      if (wanted(rows)) return rows;
      if (!changed) await new Promise<void>((resolve) => (wake = resolve));
      if (rows.length > many.rows) await pause(many.pauseMs);
    }
  } finally {
    client.off("notification", onNotification);
  }
}

/** Does the same as `until`, but polls: for relations that announce no changes, such as pg_stat_activity and pg_locks. */
export async function eventually<Row extends object>(
  client: Client,
  query: string,
  wanted: (rows: Row[]) => boolean = isOne,
  parameters: readonly unknown[] = [],
): Promise<Row[]> {
  for (;;) {
    const { rows } = await client.query<Row>(query, [...parameters]);
    if (wanted(rows)) return rows;
    await pause(pollMs);
  }
}

/** Polls until the query returns a row, and returns the first one. */
export async function waitForRow<Row extends object>(
  client: Client,
  sql: string,
  parameters: readonly unknown[] = [],
): Promise<Row> {
  const rows = await eventually<Row>(client, sql, ({ length }) => length > 0, parameters);
  return only(rows.slice(0, 1));
}

type FoundRow = Pick<TaskRow, "state" | "owner" | "pid" | "output" | "error" | "crash">;

/** Waits until the task is in this state. Returns its row. If it should succeed but fails, its error is thrown. */
export async function waitForState(client: Client, id: string, state: string): Promise<FoundRow> {
  const row = await waitForRow<FoundRow>(
    client,
    "SELECT * FROM task WHERE id = $1 AND (state = $2::text::state OR $2 = 'DONE' AND state IN ('FAIL', 'GONE'))",
    [id, state],
  );
  if (row.state !== state) throw new Error(`task ${id} is ${row.state}: ${row.error}`);
  return row;
}

/**
 * Waits until a task's run sleeps or waits for a lock, and returns the task's row. State `WORK` would not be enough: a
 * task has this state as soon as it is claimed, before its input is sent.
 */
export async function waitForRun(client: Client, id: string, table = "task"): Promise<FoundRow> {
  return await waitForRow(
    client,
    `SELECT task.* FROM ${table} AS task JOIN pg_stat_activity AS activity ON activity.pid = task.pid
     WHERE task.id = $1 AND task.state = 'WORK' AND activity.state = 'active'
       AND activity.wait_event_type IN ('Lock', 'Timeout')`,
    [id],
  );
}

export async function rowsOf<Row extends object>(
  client: Client,
  statement: string,
  parameters: readonly unknown[] = [],
): Promise<Row[]> {
  return (await client.query<Row>(statement, [...parameters])).rows;
}

/** Executes a statement that returns one value, and returns it. */
export async function valueOf<Value>(
  client: Client,
  statement: string,
  parameters: readonly unknown[] = [],
): Promise<Value> {
  return only(Object.values<Value>(only(await rowsOf<Record<string, Value>>(client, statement, parameters))));
}

/** Input that records in the table `effect (task bigint)` that the task has run. */
export const recordEffect = "INSERT INTO effect VALUES (current_setting('pg_task.id')::bigint)";

let names = 0;

/** Returns a name that no other call has returned in this process. */
export const newName = (): string => `name_${++names}`;

function select(ids: readonly string[]): string {
  return `SELECT ${columns} FROM task WHERE id = ANY ('{${ids.join(",")}}') ORDER BY id`;
}

/** Returns the element of a list, which must have exactly one element. */
export function only<T>(list: readonly T[]): T {
  const [first] = list;
  if (list.length !== 1 || first === undefined) throw new Error(`expected one, got ${list.length}`);
  return first;
}

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

export const statesOf = (rows: readonly { readonly state: string }[]): string[] => rows.map(({ state }) => state);

export const inOrderOfStart = (rows: readonly TaskRow[]): TaskRow[] =>
  rows.toSorted((a, b) => ((a.start ?? "") < (b.start ?? "") ? -1 : 1));

/** The microseconds of a time in a row. */
export function microseconds(text: string | null): number {
  const [seconds = "", fraction = ""] = (text ?? "").split(".");
  return Date.parse(`${seconds}Z`) * 1000 + Number(fraction);
}

export const times = (count: number, task: NewTask): NewTask[] => Array.from({ length: count }, () => task);
