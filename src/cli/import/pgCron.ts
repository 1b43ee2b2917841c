import type { Client } from "../../shared/postgres/client.js";
import { queryOne, queryValue } from "../../tasks/queryOne.js";
import { awaitMiddleOfMinute, readClock, readLastRuns, requireTables, switchRows } from "./schedulerTables.js";
import { kept, mapped, notMapped, type Source, type SourceJob } from "./source.js";

interface CronJob {
  readonly id: string;
  readonly name: string | null;
  readonly schedule: string;
  readonly command: string;
  readonly host: string;
  readonly database: string;
  readonly owner: string;
  readonly active: boolean;
}

export async function readPgCron(client: Client): Promise<Source> {
  await requireTables(client, "pg_cron", ["cron.job"]);
  const { zone, everything, role } = await queryOne<{ zone: string; everything: boolean; role: string }>(
    client,
    `SELECT coalesce(nullif(current_setting('cron.timezone', true), ''), 'GMT') AS zone, current_user AS role,
       NOT row_security_active('cron.job'::regclass) AS everything`,
  );
  // Older versions have neither names nor the column active.
  const { rows } = await client.query<CronJob>(
    `SELECT j.jobid::text AS id, to_jsonb(j) ->> 'jobname' AS name, j.schedule, j.command, j.nodename AS host, j.database, j.username AS owner,
       coalesce((to_jsonb(j) ->> 'active')::boolean, true) AS active
     FROM cron.job AS j ORDER BY j.jobid`,
  );
  return {
    jobs: rows.map((job) => toJob(job, zone)),
    remarks: everything ? [] : [`pg_cron shows ${role} only its own jobs; --from with a superuser shows all`],
    readRuns: async (ids, count) => ((await keepsRuns(client)) ? await readLastRuns(client, runs, ids, count) : []),
    awaitMoment: () => awaitMiddleOfMinute(() => readClock(client)),
    switchJobs: async (change, settle) => await switchRows(client, change, await cronTables(client), settle),
  };
}

const runs = `
  SELECT d.jobid::text AS id, d.job_pid AS pid, d.command AS input, d.status = 'succeeded' AS ok, d.return_message AS message,
    d.start_time::text AS start, d.end_time::text AS stop
  FROM cron.job_run_details AS d WHERE d.jobid::text = id AND d.start_time IS NOT NULL AND d.end_time IS NOT NULL
  ORDER BY d.start_time`;

/** Before version 1.3, it keeps no history. */
const keepsRuns = async (client: Client): Promise<boolean> =>
  await queryValue(client, "SELECT to_regclass('cron.job_run_details') IS NOT NULL AS kept");

/** Users may call this function for their own jobs, but not write to the table. Before version 1.4, there is none. */
async function cronTables(client: Client): Promise<{ readonly update: string; readonly since: string }> {
  const alters = await queryValue<boolean>(
    client,
    `SELECT EXISTS (SELECT FROM pg_proc WHERE pronamespace = 'cron'::regnamespace AND proname = 'alter_job') AS alters`,
  );
  return {
    since: `SELECT jobid::text AS id, clock_timestamp()::text AS since FROM cron.job WHERE jobid::text = ANY ($1::text[])`,
    update: alters
      ? "SELECT cron.alter_job(jobid, active := $2::boolean) FROM cron.job WHERE jobid::text = ANY ($1::text[])"
      : "UPDATE cron.job SET active = $2::boolean WHERE jobid::text = ANY ($1::text[])",
  };
}

function toJob(job: CronJob, zone: string): SourceJob {
  const { id, name, command, database, owner, active, schedule } = job;
  const key = `pg_cron ${id}`;
  const common = { key, id, name, database, owner, active };
  if (/^\s*@re(?:boot|start)\b/.test(schedule)) return notMapped(common, "@reboot");
  if (!isLocal(job.host)) return notMapped(common, `it runs on the host ${job.host}`);
  const values = { ...kept, group: name === null ? key : `${key} ${name}`, input: command };
  const [, seconds] = /^\s*(\d+)\s*seconds?\s*$/i.exec(schedule) ?? [];
  if (seconds !== undefined) return mapped(common, { ...values, repeat: `${seconds} seconds` });
  const rule = readSchedule(schedule);
  const isCut = rule !== schedule.trim();
  return mapped(common, { ...values, rule, zone }, isCut ? [`pg_cron reads "${schedule}" as "${rule}"`] : []);
}

const isLocal = (host: string): boolean =>
  host === "" || host.startsWith("/") || host.startsWith("@") || /^(?:localhost|127\.\d+\.\d+\.\d+|::1)$/i.test(host);

const item = String.raw`(?:\*|[A-Za-z0-9]+(?:-[A-Za-z0-9]+)?)(?:/[A-Za-z0-9]+)?`;
const readable = new RegExp(String.raw`^(?:,?${item})+`);

/** What pg_cron reads of a schedule: five fields, each up to the first character that does not belong there. */
export function readSchedule(schedule: string): string {
  const [word = "", ...others] = schedule.trim().split(/\s+/);
  if (word.startsWith("@")) return word;
  const fields = [word, ...others].slice(0, 5);
  return fields.map((field) => readable.exec(field)?.[0] ?? field).join(" ");
}
