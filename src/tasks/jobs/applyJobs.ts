import { hasSchedule, latestClaims } from "../../manager/schema/schedulesView.sql.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import { PgTaskError } from "../../shared/errors.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { insufficientPrivilege } from "../../shared/postgres/sqlStates.js";
import { columnsWith } from "../../shared/taskColumns.js";
import { addTasks, toNamedAddError, type NewRow } from "../commands/addTask.js";
import { changeTasks } from "../commands/changeTasks.js";
import { runInSavepoint } from "../commands/savepoint.js";
import { queryOne } from "../queryOne.js";
import { toTaskError } from "../taskError.js";
import type { Job } from "./job.js";
import { sameTimes } from "./sameTimes.js";

export interface JobChange {
  readonly column: string;
  readonly from: string | null;
  readonly to: string | null;
}

export interface JobResult {
  readonly key: string;
  /**
   * A job is `over` if its rule has no time left, and `refused` if the table does not accept it. Nothing is changed for
   * either.
   */
  readonly outcome: "added" | "changed" | "same" | "ended" | "over" | "refused";
  readonly changes: readonly JobChange[];
  /** Whether the schedule is paused afterwards. */
  readonly paused: boolean;
  /** Why it is over or refused, or has ended although it is among the jobs. */
  readonly reason: string | null;
}

/** What the successors of a row inherit, that is what a schedule consists of, without its key. */
const jobColumns = columnsWith({ by: "producer", inherited: true }).filter((name) => name !== "key");

/** The row that waits or runs, and has the schedule of its key. */
export interface Carrier {
  readonly id: string;
  readonly key: string;
  readonly waits: boolean;
  readonly paused: boolean;
  readonly values: Values;
}

type Values = Readonly<Record<string, string | null>>;

/**
 * Brings the schedules with these keys to what the jobs say, in the transaction of the caller. The rows stay locked until
 * its end, so that no run begins or ends with only a part of the changes.
 *
 * @param prune if given, the schedules end that have other keys which begin with this text
 */
export async function applyJobs(
  client: Client,
  table: TaskTable,
  jobs: readonly Job[],
  prune: string | null,
): Promise<JobResult[]> {
  const carriers = await lockSchedules(client, table, jobs, prune);
  const results: JobResult[] = [];
  for (const job of jobs.toSorted(byKey)) {
    results.push(await applyOrRefuse(client, table, job, carriers.get(job.key)));
  }
  const kept = new Set(jobs.map(({ key }) => key));
  const ended = [...carriers.values()].filter(({ key }) => !kept.has(key));
  await endSchedules(client, table, ended);
  return [...results, ...ended.map(({ key }) => result(key, "ended"))].toSorted(byKey);
}

async function applyOrRefuse(
  client: Client,
  table: TaskTable,
  job: Job,
  carrier: Carrier | undefined,
): Promise<JobResult> {
  try {
    return await runInSavepoint(client, () => applyJob(client, table, job, carrier));
  } catch (error) {
    const refusal = toNamedAddError(error, table, [job.row]);
    if (!(refusal instanceof PgTaskError) || refusal.code !== "TASK_REJECTED") throw toTaskError(error, table);
    const reason = refusal.message;
    if (!/ is over: /.test(reason)) return result(job.key, "refused", { reason });
    if (carrier === undefined) return result(job.key, "over", { reason });
    await endSchedules(client, table, [carrier]);
    return result(job.key, "ended", { reason });
  }
}

const byKey = (one: { readonly key: string }, other: { readonly key: string }): number =>
  one.key < other.key ? -1 : one.key > other.key ? 1 : 0;

const result = (key: string, outcome: JobResult["outcome"], more: Partial<JobResult> = {}): JobResult => ({
  key,
  outcome,
  changes: [],
  paused: false,
  reason: null,
  ...more,
});

/** With users, the role of each job by its key. Undefined stands for who is connected. */
type RolesOfJobs = ReadonlyMap<string, string | null | undefined>;

const rolesOf = (jobs: readonly Job[]): RolesOfJobs =>
  new Map(jobs.map(({ key, row }) => [key, row.columns.get("role")]));

/**
 * Locks the rows of the given jobs, and with `prune` also those whose keys begin with this text, in the order of their
 * keys, so that two callers do not wait for each other. Of several rows with a key, the one with the schedule counts,
 * preferably one that waits.
 *
 * @param roles with users, of other keys only the schedules of these roles count
 */
export async function lockSchedules(
  client: Client,
  table: TaskTable,
  jobs: readonly Job[],
  prune: string | null,
  roles: RolesOfJobs = rolesOf(jobs),
): Promise<Map<string, Carrier>> {
  const columns = [...new Set([...jobColumns, ...jobs.flatMap(({ row }) => [...row.columns.keys()])])];
  const { qualified } = table;
  const { rows } = await client.query<Omit<Carrier, "values"> & Values & Record<"role" | "me", string | null>>(
    `SELECT t.id::text AS id, t.key, t.role::text AS role, current_user::text AS me, t.state::text = 'PLAN' AND t.owner IS NULL AS waits,
       t.plan = 'infinity' AND (t.wait >= 0) IS NOT TRUE AS paused, ${columns.map(textOf).join(", ")}
     FROM ${qualified} AS t
     WHERE t.state::text IN ('PLAN', 'TAKE', 'WORK') AND t.id = ANY (ARRAY(
       SELECT w.id FROM ${qualified} AS w WHERE w.key = ANY ($1::text[]) AND w.key IS NOT NULL AND w.ready IS NOT NULL
       UNION ALL SELECT w.id FROM ${qualified} AS w
         WHERE ${hasSchedule("w")} AND w.ready IS NOT NULL AND left(w.key, length($2::text)) = $2
       UNION ALL SELECT c.id FROM (${latestClaims(qualified, "c.id, c.key")}) AS c
         WHERE c.key = ANY ($1::text[]) OR left(c.key, length($2::text)) = $2))
     ORDER BY t.key COLLATE "C", ${hasSchedule("t")}, t.state::text = 'PLAN', t.id FOR UPDATE OF t`,
    [jobs.map(({ key }) => key), prune],
  );
  // With users, each role has keys of its own.
  const named = new Set(roles.values());
  const meant = rows.filter(({ key, role, me }) => {
    if (role === null || roles.has(key)) return role === null || role === (roles.get(key) ?? me);
    return role === me || named.has(role);
  });
  return new Map(
    meant.map((row) => {
      const { id, key, waits, paused } = row;
      return [key, { id, key, waits, paused, values: valuesOf(row, columns) }];
    }),
  );
}

const valueName = (column: string): string => `value ${column}`;

const textOf = (column: string): string => `t.${identifier(column)}::text AS ${identifier(valueName(column))}`;

const valuesOf = (row: Values, columns: readonly string[]): Values =>
  Object.fromEntries(columns.map((column) => [column, row[valueName(column)] ?? null]));

async function applyJob(client: Client, table: TaskTable, job: Job, carrier: Carrier | undefined): Promise<JobResult> {
  if (carrier === undefined) {
    if (await insert(client, table, job)) return result(job.key, "added", { paused: job.paused === true });
    // The run that was going on has ended just now, and its successor waits; or somebody else has added a task.
    const found = await lockSchedules(client, table, [job], null);
    return await applyJob(client, table, job, found.get(job.key));
  }
  const row = planned(job);
  const wanted = await probe(client, table, row);
  const changes = await compare(client, table, { stored: carrier.values, wanted, given: job.row });
  const pause = job.paused === undefined || job.paused === carrier.paused ? null : job.paused;
  if (changes.length > 0) await update(client, table, carrier, changes, row);
  if (pause !== null) await changePause(client, table, job, carrier);
  const paused = pause ?? carrier.paused;
  const pausing = pause === null ? [] : [{ column: "paused", from: String(carrier.paused), to: String(pause) }];
  const all = [...changes, ...pausing];
  return result(job.key, all.length === 0 ? "same" : "changed", { changes: all, paused });
}

/** As in pg_cron, the first run of an interval comes one interval after the job was made. */
function planned({ row }: Job): NewRow {
  const repeat = row.columns.get("repeat");
  return typeof repeat !== "string" || row.columns.has("plan") ? row : { ...row, delay: repeat };
}

/** @returns whether no other task waits with its key */
async function insert(client: Client, table: TaskTable, job: Job): Promise<boolean> {
  const { delay, ...row } = planned(job);
  const columns = new Map(row.columns).set("key", job.key);
  const added = job.paused === true ? { ...row, columns: columns.set("plan", "infinity") } : { ...row, columns, delay };
  const ids = await addTasks(client, table, [added], "skip");
  return ids.length > 0;
}

/**
 * What the row of a new task with these values would have, as the server writes them. It is inserted and taken back, so
 * that defaults, triggers and checks count.
 */
async function probe(client: Client, table: TaskTable, row: NewRow): Promise<Values> {
  const columns = [...new Set([...jobColumns, ...row.columns.keys()])];
  await client.query("SAVEPOINT pg_task_probe");
  try {
    const [id] = await addTasks(client, table, [row]);
    if (id === undefined) throw new PgTaskError("TASK_REJECTED", `a trigger of ${table.qualified} leaves the task out`);
    const shown = columns.map(textOf).join(", ");
    const found = await queryOne<Values>(client, `SELECT ${shown} FROM ${table.qualified} AS t WHERE t.id = $1`, [id]);
    return valuesOf(found, columns);
  } finally {
    await client.query("ROLLBACK TO SAVEPOINT pg_task_probe; RELEASE SAVEPOINT pg_task_probe");
  }
}

/** The values of the row, of the probe, and of the job. */
interface Compared {
  readonly stored: Values;
  readonly wanted: Values;
  readonly given: NewRow;
}

async function compare(client: Client, table: TaskTable, { stored, wanted, given }: Compared): Promise<JobChange[]> {
  const changes: JobChange[] = [];
  for (const [column, to] of Object.entries(wanted)) {
    const from = stored[column] ?? null;
    if (column === "plan" || from === to) continue;
    const rules = { given: given.columns.get("rule") ?? "", stored: from ?? "", wanted: to ?? "" };
    if (column === "rule" && (await sameTimes(client, table, { ...rules, zone: wanted["zone"] ?? null }))) continue;
    changes.push({ column, from, to });
  }
  return changes;
}

/** A change of a row that runs counts for its successor, whose plan is computed then. */
async function update(
  client: Client,
  table: TaskTable,
  carrier: Carrier,
  changes: readonly JobChange[],
  row: NewRow,
): Promise<void> {
  const values: (string | null)[] = [carrier.id];
  const sets = changes.map(({ column, to }) => `${identifier(column)} = $${values.push(to)}`);
  const isReplanned = changes.some(({ column }) => column === "rule" || column === "zone" || column === "repeat");
  if (isReplanned && carrier.waits && !carrier.paused) {
    const plan = row.columns.get("plan");
    if (typeof plan === "string") sets.push(`plan = $${values.push(plan)}`);
    else if (row.delay !== undefined) sets.push(`plan = statement_timestamp() + $${values.push(row.delay)}::interval`);
  }
  await client.query(`UPDATE ${table.qualified} SET ${sets.join(", ")} WHERE id = $1`, values);
}

/** A running task cannot be paused, so a paused one replaces it when it ends. */
async function changePause(client: Client, table: TaskTable, job: Job, carrier: Carrier): Promise<void> {
  if (!carrier.waits) {
    await insert(client, table, job);
    return;
  }
  const [changed] = await changeTasks(client, table, job.paused === true ? "pause" : "resume", [carrier.id]);
  if (changed?.outcome === "changed") return;
  throw new PgTaskError("TASK_REJECTED", changed?.reason ?? "its row is locked: try again");
}

/** As `stop` for those that wait. Those that run end with their run. */
export async function endSchedules(client: Client, table: TaskTable, carriers: readonly Carrier[]): Promise<void> {
  const idsOf = (waits: boolean): string[] => carriers.filter((each) => each.waits === waits).map(({ id }) => id);
  const { qualified } = table;
  await client.query(`UPDATE ${qualified} SET state = 'STOP' WHERE id = ANY ($1::bigint[])`, [idsOf(true)]);
  await client.query(`UPDATE ${qualified} SET rule = NULL, zone = NULL, repeat = '0' WHERE id = ANY ($1::bigint[])`, [
    idsOf(false),
  ]);
}

/** Runs `work` in a transaction, which is rolled back unless `commit` allows it. */
export async function inTransaction<T>(
  client: Client,
  table: TaskTable,
  work: () => Promise<T>,
  commit: (done: T) => boolean = () => true,
): Promise<T> {
  await client.query("BEGIN");
  try {
    const done = await work();
    await client.query(commit(done) ? "COMMIT" : "ROLLBACK");
    return done;
  } catch (error) {
    // It fails only if the connection is lost.
    await client.query("ROLLBACK").catch(() => {});
    throw await withGrants(client, table, error);
  }
}

/** Adds to an error of a lacking privilege what has to be granted. Returns any other error unchanged. */
async function withGrants(client: Client, { qualified }: TaskTable, error: unknown): Promise<unknown> {
  const state = error instanceof PgTaskError ? error.sqlState : sqlState(error);
  if (state !== insufficientPrivilege) return error;
  const { grants } = await queryOne<{ grants: string | null }>(
    client,
    `SELECT string_agg(format('GRANT %s ON %s TO %I', p.what, p.place, current_user), '; ' ORDER BY p.n) AS grants
     FROM (SELECT 1 AS n, string_agg(w, ', ') AS what, $1 AS place FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS w
         WHERE NOT has_table_privilege($1, w)
       UNION ALL SELECT 2, 'USAGE', 'SEQUENCE ' || s FROM pg_get_serial_sequence($1, 'id') AS s WHERE NOT has_sequence_privilege(s, 'USAGE')) AS p
     WHERE p.what IS NOT NULL`,
    [qualified],
  );
  if (grants === null) return error;
  return new PgTaskError("SCHEMA_NOT_ALLOWED", `permission denied on ${qualified}: ${grants}`, {
    cause: error,
    sqlState: insufficientPrivilege,
    remedy: grants,
  });
}
