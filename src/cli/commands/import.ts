import { resolve } from "node:path";
import type { Configuration, Entry } from "../../shared/config/types.js";
import { PgTaskError } from "../../shared/errors.js";
import { ConnectionStringError } from "../../shared/postgres/errors.js";
import { parseTargetUrl, resolveTarget } from "../../shared/postgres/target/resolveTarget.js";
import { jsonText, printableLine } from "../../shared/printable.js";
import type { JobResult } from "../../tasks/jobs/applyJobs.js";
import { readTableLock } from "../../tasks/queries/clusterProcesses.js";
import { listRole, readTableRoles, unlisted } from "../../tasks/queries/roles.js";
import { queryValue } from "../../tasks/queryOne.js";
import { readCrontab } from "../import/crontab.js";
import { readIcs } from "../import/ics.js";
import {
  compareJobs,
  moveJobs,
  returnJobs,
  roleOf,
  type Destination,
  type MappedJob,
  type Returned,
} from "../import/moveJobs.js";
import { readPgAgent } from "../import/pgAgent.js";
import { readPgCron } from "../import/pgCron.js";
import { readPgpro } from "../import/pgpro.js";
import { readPgTimetable } from "../import/pgTimetable.js";
import { findEntry } from "../import/place.js";
import type { Source, SourceJob } from "../import/source.js";
import type { sources } from "../definitions.js";
import { commandExitCodes } from "../support/exitCodes.js";
import { chooseEntry, loadForCommand, withClient, withEntry, type OpenTable } from "../support/openTable.js";
import type { CommandOptions } from "../support/options.js";
import { readText } from "../support/readText.js";
import { copyField } from "../terminal/format.js";
import { colourText, type Terminal } from "../terminal/terminal.js";

type SourceName = (typeof sources)[number];

interface ImportOptions extends CommandOptions {
  readonly from?: string;
  readonly zone?: string;
  readonly apply?: true;
  readonly back?: true;
  readonly dryRun?: true;
  readonly anyOwner?: true;
  readonly runs: number;
}

const schedulers = {
  pg_cron: readPgCron,
  pgagent: readPgAgent,
  pg_timetable: readPgTimetable,
  pgpro: readPgpro,
} as const;

const isScheduler = (name: SourceName): name is keyof typeof schedulers => Object.hasOwn(schedulers, name);

export async function importJobs(
  terminal: Terminal,
  name: SourceName,
  file: string | undefined,
  options: ImportOptions,
): Promise<number> {
  if (isScheduler(name) !== (file === undefined)) {
    throw new PgTaskError("USAGE", `expected ${isScheduler(name) ? "no file" : "a file"} for ${name}`);
  }
  if (options.apply === true && options.back === true)
    throw new PgTaskError("USAGE", "expected --apply or --back, got both");
  if (options.apply === true && options.dryRun === true)
    throw new PgTaskError("USAGE", "expected --apply or --dry-run, got both");
  if (!isScheduler(name) && options.from !== undefined) throw new PgTaskError("USAGE", `--from is not for ${name}`);
  const configuration = await loadForCommand(terminal, options);
  const isChosen = options.entry !== undefined || options.table !== undefined;
  const entries = isChosen ? [chooseEntry(terminal, configuration, options)] : configuration.entries;
  const run: Run = { terminal, configuration, entries, name, options, shared: null };
  if (!isScheduler(name)) return await moveOrGoBack(run, await readFileSource(terminal, name, file ?? "", options));
  if (options.from !== undefined) {
    const target = await resolveTarget(parseUrl(options.from), {
      env: terminal.env,
      warn: (message) => terminal.writeError(`pg-task: ${message}\n`),
    });
    return await withClient(target, "import", async (client) => moveOrGoBack(run, await schedulers[name](client)));
  }
  const [first = chooseEntry(terminal, configuration, options)] = entries;
  return await withEntry(configuration, first, "import", async (opened) =>
    moveOrGoBack({ ...run, shared: opened }, await schedulers[name](opened.client)),
  );
}

function parseUrl(url: string): ReturnType<typeof parseTargetUrl> {
  try {
    return parseTargetUrl(url);
  } catch (error) {
    if (!(error instanceof ConnectionStringError)) throw error;
    throw new PgTaskError("USAGE", `--from: ${error.message}`);
  }
}

async function readFileSource(
  terminal: Terminal,
  name: SourceName,
  file: string,
  { zone, apply, back, dryRun }: ImportOptions,
): Promise<Source> {
  const text = await readText(terminal, file, name);
  if (name === "ics") return readIcs(text, zone);
  if (file === "-" && (apply === true || back === true) && dryRun !== true) {
    throw new PgTaskError("USAGE", "expected a file, whose lines are switched off, got standard input");
  }
  const readSql = async (path: string): Promise<string | null> =>
    await readText(terminal, path, "SQL").catch((error: unknown) => {
      if (error instanceof PgTaskError) return null;
      throw error;
    });
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return await readCrontab({ file: resolve(terminal.cwd, file), text, zone: zone ?? local, readSql });
}

interface Line {
  readonly key: string;
  readonly name: string | null;
  readonly mapping: "same" | "differs" | "not mapped";
  readonly notes: readonly string[];
  /** The table to which it comes. */
  readonly table: string | null;
  readonly database: string | null;
  /** With users: as whom it runs. */
  readonly role: string | null;
  readonly outcome: JobResult["outcome"] | null;
  readonly changes: JobResult["changes"];
}

interface Run {
  readonly terminal: Terminal;
  readonly configuration: Configuration;
  readonly entries: readonly Entry[];
  readonly name: SourceName;
  readonly options: ImportOptions;
  /** The table whose connection the source uses. */
  readonly shared: OpenTable | null;
}

async function moveOrGoBack(run: Run, source: Source): Promise<number> {
  const { terminal, options } = run;
  // Beside JSON on a terminal, they would be taken for a part of it.
  if (options.json !== true || !terminal.isTerminal) {
    for (const remark of source.remarks ?? []) terminal.writeError(`pg-task: ${remark}\n`);
  }
  await (options.back === true ? goBack(run, source) : move(run, source));
  return commandExitCodes.done;
}

async function move(run: Run, source: Source): Promise<void> {
  const { anyOwner = false, apply = false } = run.options;
  const places = new Map<SourceJob, Entry | string>(
    source.jobs.map((job) => [job, job.define === null ? "" : findEntry(job, run.entries, anyOwner)]),
  );
  const lines = new Map<string, Line>();
  for (const [job, place] of places) {
    if (typeof place === "string") lines.set(job.key, unmapped(job, place === "" ? job.notes : [place]));
  }
  for (const entry of run.entries) {
    const jobs = source.jobs.filter((job): job is MappedJob => places.get(job) === entry);
    if (jobs.length === 0) continue;
    await withDestination(run, entry, async (to) => {
      // With users, a job needs a role that is listed, unless it may run as the entry's user.
      const isRefused = (job: MappedJob): boolean =>
        !anyOwner && to.roles !== undefined && job.owner !== entry.target.user && roleOf(to, job) === undefined;
      const usable = jobs.filter((job) => !isRefused(job));
      for (const job of jobs.filter(isRefused)) lines.set(job.key, unmapped(job, [await notListed(job, to)]));
      if (usable.length === 0) return;
      if (apply && run.name !== "ics" && usable.some(({ active }) => active)) await requireManager(to);
      const results = apply ? await moveJobs(to, source, usable) : await compareJobs(to, usable);
      const byKey = new Map(results.map((each) => [each.key, each]));
      for (const job of usable) lines.set(job.key, toLine(job, entry, to, byKey.get(job.key)));
    });
  }
  print(
    run,
    source.jobs.flatMap(({ key }) => lines.get(key) ?? []),
  );
}

async function goBack(run: Run, source: Source): Promise<void> {
  const { terminal, name } = run;
  const { json, dryRun = false } = run.options;
  const all: Returned[] = [];
  for (const entry of run.entries) {
    await withDestination(run, entry, async (to) => {
      all.push(...(await returnJobs(to, source, source.jobs, { prefix: `${name} `, dryRun })));
    });
  }
  if (json === true) {
    terminal.write(`${jsonText({ source: name, applied: !dryRun, jobs: all })}\n`);
    return;
  }
  for (const { key, outcome } of all) {
    const text = outcome === "unknown there" ? "is not there any more, and stays here" : `ends here, ${outcome}`;
    const line = terminal.isTerminal
      ? printableLine(`${key}: ${text}`)
      : [key, outcome, text].map(copyField).join("\t");
    terminal.write(`${line}\n`);
  }
  if (dryRun) terminal.writeError("pg-task: nothing was changed\n");
}

async function withDestination(run: Run, entry: Entry, work: (to: Destination) => Promise<void>): Promise<void> {
  const { shared, configuration, options } = run;
  const open = async ({ client, table }: OpenTable, isShared: boolean): Promise<void> => {
    const listed = entry.users ? await readTableRoles(client, table) : null;
    const roles = listed?.filter(({ problem }) => problem !== unlisted).map(({ role }) => role);
    await work({
      client,
      table,
      isShared,
      runs: options.runs,
      ...(roles === undefined ? {} : { roles: new Set(roles) }),
    });
  };
  if (shared?.entry === entry) return await open(shared, true);
  await withEntry(configuration, entry, "import", (opened) => open(opened, false));
}

function print({ terminal, name, options }: Run, lines: readonly Line[]): void {
  const { json, apply = false } = options;
  if (json === true) {
    terminal.write(`${jsonText({ source: name, applied: apply, jobs: lines })}\n`);
    return;
  }
  for (const line of lines) terminal.write(`${describe(terminal, line)}\n`);
  const count = (mapping: Line["mapping"]): number => lines.filter((line) => line.mapping === mapping).length;
  const rest = apply ? "" : "; nothing was changed, --apply moves them";
  terminal.writeError(
    `pg-task: ${count("same")} the same, ${count("differs")} differ, ${count("not mapped")} not mapped${rest}\n`,
  );
}

/** Otherwise, the jobs would run nowhere. */
async function requireManager({ client, table }: Destination): Promise<void> {
  const { manager } = await readTableLock(client, table);
  if (manager !== null) return;
  throw new PgTaskError(
    "USAGE",
    `no pg-task serves ${table.qualified}, and the jobs would run nowhere: start it first`,
  );
}

async function notListed({ owner }: MappedJob, { client, table }: Destination): Promise<string> {
  if (owner === null) return "it says no role: name one, such as by psql -U ROLE in a crontab; or --any-owner";
  const isSuper = await queryValue<boolean>(
    client,
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1 AND rolsuper) AS super",
    [owner],
  );
  if (isSuper) return `tasks cannot run as its owner ${owner}, a superuser: give the job another, or --any-owner`;
  return `owner ${owner} is no role of the table: ${listRole(table, owner)}; or --any-owner`;
}

const unmapped = ({ key, name }: SourceJob, notes: readonly string[]): Line => ({
  key,
  name,
  mapping: "not mapped",
  notes,
  table: null,
  database: null,
  role: null,
  outcome: null,
  changes: [],
});

function toLine(job: MappedJob, { schema, table, target }: Entry, to: Destination, found: JobResult | undefined): Line {
  if (found?.outcome === "refused" || found?.outcome === "over") return unmapped(job, [found.reason ?? ""]);
  const { key, name, notes, owner } = job;
  const isOwn = owner === null || owner === target.user || roleOf(to, job) === owner;
  const foreign = isOwn ? [] : [`ran as ${owner}, and runs as ${target.user}`];
  const all = [...foreign, ...notes];
  return {
    key,
    name,
    mapping: all.length === 0 ? "same" : "differs",
    notes: all,
    table: `${schema}.${table}`,
    database: target.database,
    role: to.roles === undefined ? null : (roleOf(to, job) ?? target.user),
    outcome: found?.outcome ?? null,
    changes: found?.changes ?? [],
  };
}

function describe(terminal: Terminal, line: Line): string {
  const { key, name, mapping, notes, table, database, role, outcome, changes } = line;
  const columns = changes.map(({ column }) => column).join(", ");
  const here =
    outcome === null
      ? []
      : [
          `${outcome === "same" ? "unchanged" : outcome}${columns === "" ? "" : ` (${columns})`} in ${table} of ${database}`,
        ];
  const text = [...notes, ...(role === null ? [] : [`runs as ${role}`]), ...here].join("; ");
  if (!terminal.isTerminal) return [key, mapping, name, text].map(copyField).join("\t");
  const label = name === null ? key : `${key} (${name})`;
  const colour = mapping === "same" ? null : mapping === "differs" ? "yellow" : "red";
  return colourText(terminal, colour, printableLine(`${label}: ${mapping}${text === "" ? "" : `: ${text}`}`));
}
