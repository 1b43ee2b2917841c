import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import { identifier } from "../../shared/postgres/quoting.js";
import {
  applyJobs,
  endSchedules,
  inTransaction,
  lockSchedules,
  type Carrier,
  type JobResult,
} from "../../tasks/jobs/applyJobs.js";
import { addTasks } from "../../tasks/commands/addTask.js";
import { toJob, type Job } from "../../tasks/jobs/job.js";
import type { Define, PastRun, Since, Source, SourceJob } from "./source.js";

export type MappedJob = SourceJob & { readonly define: Define };

export interface Destination {
  readonly client: Client;
  readonly table: TaskTable;
  /** Whether the tables of the source are read over the same connection. */
  readonly isShared: boolean;
  /** How many past runs of each job are copied. */
  readonly runs: number;
  /** With users: whose jobs run as themselves. All others run as the entry's user. */
  readonly roles?: ReadonlySet<string>;
}

export const roleOf = ({ roles }: Pick<Destination, "roles">, { owner }: SourceJob): string | undefined =>
  owner !== null && roles?.has(owner) === true ? owner : undefined;

/**
 * What the column `data` says while a job is moved between two databases, which cannot commit together. Whoever calls
 * the command again after a crash goes on from there: `switching` may still run there, `switched` no longer does, and
 * `returning` has ended here.
 */
const marks = {
  switching: "pg-task import: to be switched off there",
  switched: "pg-task import: off there since ",
  returning: "pg-task import: to be switched on there",
} as const;

interface Plan {
  readonly job: MappedJob;
  readonly applied: Job;
  /** The time since which it does not run there, if an earlier attempt got so far. */
  readonly since: string | null;
}

function plan(to: Destination, job: MappedJob, here: Carrier | undefined): Plan {
  const mark = here?.values["data"] ?? null;
  const waits = here === undefined || here.paused;
  const moves = job.active && waits;
  const since = !job.active && waits && mark?.startsWith(marks.switched) ? mark.slice(marks.switched.length) : null;
  const paused = moves || (here === undefined ? !job.active : undefined);
  const data = moves ? { data: marks.switching } : since === null ? {} : { data: mark };
  const definition = { ...job.define(to.table), role: roleOf(to, job), ...data, paused };
  return { job, applied: toJob(job.key, definition), since };
}

/** Jobs that have run as the entry's user so far, because their owners were not listed, run as their owners from now on. */
async function giveToOwners(to: Destination, jobs: readonly MappedJob[]): Promise<void> {
  const { client, table } = to;
  const owned = jobs.filter((job) => roleOf(to, job) !== undefined);
  if (owned.length === 0) return;
  const definitions = owned.map((job) => toJob(job.key, job.define(table)));
  const former = await lockSchedules(client, table, definitions, null);
  for (const job of owned) {
    const carrier = former.get(job.key);
    if (carrier?.waits === false) {
      throw new PgTaskError(
        "USAGE",
        `${job.key} is running as the entry's user: call the command again when it has ended`,
      );
    }
    if (carrier === undefined) continue;
    await client.query(`UPDATE ${table.qualified} SET role = $2 WHERE id = $1`, [carrier.id, roleOf(to, job)]);
  }
}

/** @returns as plans those whose jobs have to be switched off there */
async function applyPlans(
  to: Destination,
  jobs: readonly MappedJob[],
): Promise<{ readonly plans: readonly Plan[]; readonly results: readonly JobResult[] }> {
  const { client, table } = to;
  await giveToOwners(to, jobs);
  const keyed = jobs.map((job) => toJob(job.key, { ...job.define(table), role: roleOf(to, job) }));
  const here = await lockSchedules(client, table, keyed, null);
  const plans = jobs.map((job) => plan(to, job, here.get(job.key)));
  const applied = await applyJobs(
    client,
    table,
    plans.map((each) => each.applied),
    null,
  );
  const results = applied.map((each) => ({ ...each, changes: each.changes.filter(({ column }) => column !== "data") }));
  const accepted = new Set(results.filter(({ outcome }) => !/refused|over|ended/.test(outcome)).map(({ key }) => key));
  const started = plans.filter(({ job, since }) => since !== null && accepted.has(job.key));
  await start(
    to,
    timesOf(started, ({ since }) => since ?? undefined),
  );
  return { plans: plans.filter(({ job }) => job.active && accepted.has(job.key)), results };
}

/** Copies the runs there that began after the last one here, so that a second call copies none twice. */
async function copyRuns(to: Destination, { readRuns }: Source, jobs: readonly MappedJob[]): Promise<void> {
  const { client, table, runs } = to;
  if (readRuns === undefined || runs === 0) return;
  const past = await readRuns([...new Set(jobs.map(({ id }) => id))], runs);
  const { rows } = await client.query<{ key: string; start: string }>(
    `SELECT t.key, max(t.start)::text AS start FROM ${table.qualified} AS t JOIN unnest($1::text[], $2::text[]) AS m(key, role) ON ${isOfJob}
     WHERE t.start IS NOT NULL GROUP BY t.key`,
    keysAndRoles(to, jobs),
  );
  const last = new Map(rows.map(({ key, start: time }) => [key, Date.parse(time)]));
  // Of several schedules of a job, the first one gets its runs.
  const firsts = jobs.filter((job, index) => jobs.findIndex(({ id }) => id === job.id) === index);
  const copied = firsts.flatMap((job) => {
    const { group } = job.define(table);
    const role = roleOf(to, job);
    const later = past.filter(
      (run) => run.id === job.id && !(Date.parse(run.start) <= (last.get(job.key) ?? -Infinity)),
    );
    return later.map((run) => ({
      columns: new Map([
        ...columnsOf(run),
        ["key", job.key],
        ["group", group ?? job.key],
        ...(role === undefined ? [] : [["role", role] as const]),
      ]),
    }));
  });
  if (copied.length > 0) await addTasks(client, table, copied);
}

const columnsOf = ({ pid, input, ok, message, start: began, stop }: PastRun): readonly [string, string | null][] => [
  ["input", input],
  ["state", ok ? "DONE" : "FAIL"],
  [ok ? "output" : "error", message],
  ["plan", began],
  ["start", began],
  ["stop", stop],
  ["pid", pid === null ? null : String(pid)],
  ["delete", "false"],
];

/** What `move` would do with each job. */
export async function compareJobs(to: Destination, jobs: readonly MappedJob[]): Promise<readonly JobResult[]> {
  return await inTransaction(
    to.client,
    to.table,
    async () => (await applyPlans(to, jobs)).results,
    () => false,
  );
}

/**
 * Adds the jobs or brings them up to date, switches off there those that run, and starts them here with their first time
 * after that. Within one database, this is one transaction.
 */
export async function moveJobs(
  to: Destination,
  source: Source,
  jobs: readonly MappedJob[],
): Promise<readonly JobResult[]> {
  const { client, table, isShared } = to;
  if (jobs.some(({ active }) => active)) await source.awaitMoment();
  const switchOff = async (plans: readonly Plan[], settle: (since: Since) => Promise<void>): Promise<void> => {
    if (plans.length === 0) return;
    const ids = [...new Set(plans.map(({ job }) => job.id))];
    await source.switchJobs({ on: false, ids, inTransaction: isShared }, settle);
  };
  if (isShared) {
    return await inTransaction(client, table, async () => {
      await copyRuns(to, source, jobs);
      const { plans, results } = await applyPlans(to, jobs);
      await switchOff(plans, (since) =>
        start(
          to,
          timesOf(plans, ({ job }) => since.get(job.id)),
        ),
      );
      return results;
    });
  }
  const { plans, results } = await inTransaction(client, table, async () => {
    await copyRuns(to, source, jobs);
    return await applyPlans(to, jobs);
  });
  let times: readonly Time[] = [];
  await switchOff(plans, async (since) => {
    times = timesOf(plans, ({ job }) => since.get(job.id));
    await note(to, times);
  });
  await start(to, times);
  return results;
}

/** Since when a job does not run there. */
interface Time {
  readonly job: MappedJob;
  readonly since: string;
}

/** Without the jobs that have been deleted there in the meantime. */
const timesOf = (plans: readonly Plan[], sinceOf: (plan: Plan) => string | undefined): Time[] =>
  plans.flatMap((each) => {
    const since = sinceOf(each);
    return since === undefined ? [] : { job: each.job, since };
  });

/** SQL condition: the row `t` belongs to the job `m`. With users, each role has keys of its own. */
const isOfJob = "t.key = m.key AND (t.role IS NULL OR t.role::text = coalesce(m.role, current_user))";

const isMarked = "t.ready IS NOT NULL AND t.data LIKE 'pg-task import: %'";

const keysAndRoles = (to: Destination, jobs: readonly SourceJob[]): unknown[] => [
  jobs.map(({ key }) => key),
  jobs.map((job) => roleOf(to, job)),
];

const timeValues = (to: Destination, times: readonly Time[]): unknown[] => [
  ...keysAndRoles(
    to,
    times.map(({ job }) => job),
  ),
  times.map(({ since }) => since),
];

async function note(to: Destination, times: readonly Time[]): Promise<void> {
  await to.client.query(
    `UPDATE ${to.table.qualified} AS t SET data = $4 || m.since FROM unnest($1::text[], $2::text[], $3::text[]) AS m(key, role, since)
     WHERE ${isOfJob} AND ${isMarked}`,
    [...timeValues(to, times), marks.switched],
  );
}

async function start(to: Destination, times: readonly Time[]): Promise<void> {
  const { client, table } = to;
  const calendar = identifier(table.schema);
  await client.query(
    `UPDATE ${table.qualified} AS t SET data = NULL, plan = CASE WHEN t.rule IS NULL THEN m.since + t.repeat
         WHEN ${calendar}.task_rule_kind(t.rule) = 'query' THEN m.since
         ELSE coalesce(${calendar}.task_next(t.rule, t.zone, m.since), 'infinity') END
     FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS m(key, role, since) WHERE ${isOfJob} AND ${isMarked}`,
    timeValues(to, times),
  );
}

export interface Returned {
  readonly key: string;
  /** Whether it runs there again. If not, it was paused here, or is not there any more. */
  readonly outcome: "runs there" | "paused there" | "unknown there";
}

interface Return {
  readonly known: readonly Carrier[];
  /** Of the jobs to be switched on there. */
  readonly ids: readonly string[];
  readonly returned: readonly Returned[];
}

/** Ends the schedules whose keys begin with `prefix`, and switches on there those that were not paused here. */
export async function returnJobs(
  to: Destination,
  source: Source,
  jobs: readonly SourceJob[],
  { prefix, dryRun }: { readonly prefix: string; readonly dryRun: boolean },
): Promise<readonly Returned[]> {
  const { client, table, isShared } = to;
  const there = new Map(jobs.map((job) => [job.key, job]));
  const roles = new Map(jobs.map((job) => [job.key, roleOf(to, job)]));
  const outcomeOf = ({ key, paused }: Carrier): Returned["outcome"] =>
    !there.has(key) ? "unknown there" : paused ? "paused there" : "runs there";
  const planned = async (): Promise<Return> => {
    const carriers = [...(await lockSchedules(client, table, [], prefix, roles)).values()];
    const known = carriers.filter(({ key }) => there.has(key));
    const running = known.filter(({ paused }) => !paused).map(({ key }) => key);
    const interrupted = (await readReturning(to, jobs)).filter((key) => !running.includes(key));
    return {
      known,
      ids: [...new Set([...running, ...interrupted].map((key) => there.get(key)?.id ?? ""))],
      returned: [
        ...carriers.map((carrier) => ({ key: carrier.key, outcome: outcomeOf(carrier) })),
        ...interrupted.map((key) => ({ key, outcome: "runs there" }) as const),
      ],
    };
  };
  const end = async ({ known }: Return): Promise<void> => {
    const ids = known.filter(({ paused }) => !paused).map(({ id }) => id);
    await client.query(`UPDATE ${table.qualified} SET data = $2 WHERE id = ANY ($1::bigint[])`, [ids, marks.returning]);
    await endSchedules(client, table, known);
  };
  const first = await inTransaction(client, table, planned, () => false);
  if (dryRun) return first.returned;
  if (first.ids.length > 0) await source.awaitMoment();
  const switchOn = async (ids: readonly string[], settle: () => Promise<void>): Promise<void> => {
    if (ids.length === 0) await settle();
    else await source.switchJobs({ on: true, ids, inTransaction: isShared }, settle);
  };
  const endAll = async (): Promise<void> => {
    const found = await planned();
    await end(found);
    if (isShared) await switchOn(found.ids, () => Promise.resolve());
  };
  if (isShared) await inTransaction(client, table, endAll);
  else await switchOn(first.ids, () => inTransaction(client, table, endAll));
  await client.query(`UPDATE ${table.qualified} SET data = NULL WHERE key = ANY ($1::text[]) AND data = $2`, [
    [...there.keys()],
    marks.returning,
  ]);
  return first.returned;
}

async function readReturning(to: Destination, jobs: readonly SourceJob[]): Promise<string[]> {
  const { client, table } = to;
  const { rows } = await client.query<{ key: string }>(
    `SELECT key FROM (SELECT DISTINCT ON (t.key) t.key, t.data, t.ready
       FROM ${table.qualified} AS t JOIN unnest($1::text[], $2::text[]) AS m(key, role) ON ${isOfJob}
       ORDER BY t.key, t.id DESC) AS newest WHERE data = $3 AND ready IS NULL`,
    [...keysAndRoles(to, jobs), marks.returning],
  );
  return rows.map(({ key }) => key);
}
