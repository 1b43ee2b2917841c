/**
 * Type tests of the library. They are compiled with the project, and, by the test of the package, as a program of a user
 * that imports the package. Nothing here is executed.
 */
import {
  type finalStates,
  PgTaskError,
  start,
  TaskClient,
  type taskStates,
  type Config,
  type ErrorCode,
  type FinalState,
  type NewTask,
  type PgTask,
  type SqlClient,
  type SqlPool,
  type Task,
  type TaskChange,
  type TaskOutcome,
  type TaskState,
  type TaskSummary,
} from "../../src/library/index.js";

type Equal<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false;
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the type is the whole point
const holds = <T extends true>(): T | undefined => undefined;

holds<Equal<TaskState, "PLAN" | "TAKE" | "WORK" | "DONE" | "FAIL" | "GONE" | "STOP">>();
holds<Equal<FinalState, "DONE" | "FAIL" | "GONE" | "STOP">>();
holds<Equal<(typeof taskStates)[number], TaskState>>();
holds<Equal<(typeof finalStates)[number], FinalState>>();
holds<Equal<Task["state"], TaskState>>();
holds<Equal<TaskSummary["state"], TaskState>>();
holds<Equal<TaskOutcome["state"], FinalState>>();
holds<Equal<TaskChange["previous"], TaskState | null>>();
holds<Equal<Task["id"], string>>();
holds<Equal<Task["output"], string | null>>();
holds<Equal<PgTask["role"], "seeking" | "leader" | "standby" | "stopping" | "stopped">>();

/** An interface has no index signature. */
interface Order {
  readonly id: number;
  readonly note?: string;
  readonly lines: readonly { readonly price: number }[];
}

declare const order: Order;

export async function useClient(pool: SqlPool, client: SqlClient): Promise<void> {
  const tasks = new TaskClient(pool, {
    schema: "mail",
    table: "outbox",
    acquireTimeoutMs: 1,
    reconnectMs: 0,
    answerTimeoutMs: 1,
  });
  const overClient = new TaskClient(client);
  const overUrl = new TaskClient("postgresql://localhost/shop");
  // @ts-expect-error -- neither a pool nor a client nor a URL
  const overNumber = new TaskClient(7);
  // @ts-expect-error -- a misspelt option
  const misspelt = new TaskClient(pool, { tabel: "task" });

  const id = await tasks.add("SELECT 1");
  holds<Equal<typeof id, string>>();
  const skipped = await tasks.add({ input: "SELECT", key: "k" }, { ifKeyTaken: "skip" });
  holds<Equal<typeof skipped, string | null>>();
  const joined = await tasks.add({ input: "SELECT", key: "k" }, { ifKeyTaken: "join" });
  holds<Equal<typeof joined, string>>();
  const ids = await tasks.addMany(["SELECT", { input: "SELECT", args: [1], plan: new Date(), after: [1n, "2"] }], {
    client,
  });
  holds<Equal<typeof ids, string[]>>();
  // @ts-expect-error -- no input
  await tasks.add({ group: "g" });
  // @ts-expect-error -- a misspelt column; columns of your own go into `columns`
  await tasks.add({ input: "SELECT", grup: "g" });
  await tasks.add({ input: "SELECT", args: [order, [order], { order, at: new Date(), none: null }, true, ["x", 1]] });
  await tasks.add({ input: "SELECT", args: order });
  const values: string[] = ["x"];
  const fields: Record<string, number> = { n: 1 };
  await tasks.add({ input: "SELECT", args: values });
  await tasks.add({ input: "SELECT", args: fields });
  await tasks.add({ input: "SELECT", args: { lines: [{ price: 1 }], when: new Date() } });
  await tasks.add({ input: "SELECT", args: { note: undefined, line: { note: undefined } } });
  // @ts-expect-error -- JSON has no bigint
  await tasks.add({ input: "SELECT", args: [1n] });
  // @ts-expect-error -- JSON has no functions
  await tasks.add({ input: "SELECT", args: [() => 1] });
  // @ts-expect-error -- JSON has no undefined
  await tasks.add({ input: "SELECT", args: [undefined] });
  // @ts-expect-error -- JSON would change the bytes to an object
  await tasks.add({ input: "SELECT", args: [new Uint8Array(1)] });
  // @ts-expect-error -- JSON would change the map to an empty object
  await tasks.add({ input: "SELECT", args: [new Map([["a", 1]])] });
  // @ts-expect-error -- a promise that is not awaited
  await tasks.add({ input: "SELECT", args: [Promise.resolve(1)] });
  // @ts-expect-error -- also in a nested array
  await tasks.add({ input: "SELECT", args: [[1n]] });
  // @ts-expect-error -- a number of an unknown unit
  await tasks.add({ input: "SELECT", delay: 1000 });
  // @ts-expect-error -- none of the three words
  await tasks.add({ input: "SELECT", upon: "success" });
  await tasks.add({ input: "SELECT", columns: { tags: ["a"], at: new Date(), size: 1n } });

  // What is undefined counts as left out.
  const left: { signal?: AbortSignal; group?: string } = {};
  const { signal, group } = left;
  await tasks.add({ input: "SELECT", group });
  tasks.list({ signal, group });
  tasks.changes({ signal, group });
  await tasks.wait(id, { signal });
  await start({ signal });
  // @ts-expect-error -- the call would not be part of the caller's transaction
  await tasks.get(id, { client: undefined });

  const task = await tasks.get(id, { client });
  holds<Equal<typeof task, Task | null>>();
  const outcome = await tasks.wait(7n, { signal: AbortSignal.timeout(1) });
  holds<Equal<typeof outcome, TaskOutcome>>();
  const one = await tasks.stop(id);
  holds<Equal<typeof one.outcome, "changed" | "refused" | "missing" | "locked" | "failed">>();
  const several = await tasks.retry([id, 7, 7n], { client });
  holds<Equal<(typeof several)[number], typeof one>>();
  await tasks.retry(id, { states: ["FAIL", "GONE"], client });
  // @ts-expect-error -- only tasks that have ended are retried
  await tasks.retry(id, { states: ["PLAN"] });
  // @ts-expect-error -- an option of `retry` only
  await tasks.stop(id, { states: ["FAIL"] });
  await tasks.delete(id, { running: true });
  // @ts-expect-error -- a pool has no transaction
  await tasks.add("SELECT 1", { client: pool });
  // @ts-expect-error -- an option of `delete` only
  await tasks.stop(id, { running: true });

  for await (const summary of tasks.list({ states: ["FAIL"], group: "g", before: 7 })) {
    holds<Equal<typeof summary, TaskSummary>>();
  }
  tasks.list({ since: new Date(), until: "tomorrow" });
  tasks.changes({ since: "yesterday", until: new Date() });
  // @ts-expect-error -- neither a Date nor text
  tasks.list({ since: Date.now() });
  // @ts-expect-error -- no such state
  tasks.list({ states: ["FAILED"] });
  for await (const change of tasks.changes({ ids })) holds<Equal<typeof change, TaskChange>>();
  for (const each of [tasks, overClient, overUrl, overNumber, misspelt]) await each.end();
}

export async function runPgTask(): Promise<void> {
  const config: Config = {
    url: "postgresql://localhost/shop",
    "pg_task.sleep": 100,
    "pg_task.output": "64MB",
    "pg_http.token": { env: "TOKEN" },
    "pg_task.json": [{ data: "shop", user: "shop", password: { env: "SHOP" }, sleep: 10, "pg_task.max": 3 }],
  };
  const pgTask = await start({ config, signal: AbortSignal.timeout(1), signals: true, logger: false });
  holds<Equal<typeof pgTask, PgTask>>();
  pgTask.on("entry", ({ key, state, counts }) => [key.length, state === "working", counts?.done]);
  pgTask.on("stopped", (error) => holds<Equal<typeof error, PgTaskError | null>>());
  // @ts-expect-error -- no such event
  pgTask.on("entries", () => {});
  // @ts-expect-error -- a parameter of the wrong type
  await pgTask.reload({ "pg_task.sleep": "fast" });
  // @ts-expect-error -- no such parameter
  await start({ config: { "pg_task.slepe": 1 } });
  await start({ embedded: true, config: { "pg_task.sleep": 100 } });
  await start({ embedded: { port: 5432 }, signals: true });
  await start({ url: "postgresql://localhost/shop", config: { "pg_task.sleep": 100 }, embedded: false });
  await start({ config: "shop.json" });
  await start({ config: [{ data: "shop" }] });
  // @ts-expect-error -- two servers
  await start({ embedded: true, url: "postgresql://localhost/shop" });
  // @ts-expect-error -- a url beside an array of entries
  await start({ url: "postgresql://localhost/shop", config: [] });
  // @ts-expect-error -- a url beside a file
  await start({ url: "postgresql://localhost/shop", config: "shop.json" });
  const shown = pgTask.toJSON();
  holds<Equal<typeof shown.entries, PgTask["entries"]>>();
  await pgTask.stop({ graceMs: 0 });
  const ended = await pgTask.stopped;
  holds<Equal<typeof ended, PgTaskError | null>>();
}

export function codeOf(error: unknown): ErrorCode | null {
  if (!(error instanceof PgTaskError)) return null;
  // @ts-expect-error -- no such code
  if (error.code === "NO_SUCH_CODE") return null;
  return error.code;
}

export const nightly: NewTask = { input: "CALL refresh()", rule: "30 3 * * *", zone: "Europe/Berlin" };
