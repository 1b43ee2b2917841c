import { setTimeout as pause } from "node:timers/promises";
import type { Configuration, Entry } from "../../shared/config/types.js";
import { PgTaskError } from "../../shared/errors.js";
import { jsonText, printableLine } from "../../shared/printable.js";
import { isPgTaskSql } from "../../shared/postgres/applicationNames.js";
import type { Client } from "../../shared/postgres/client.js";
import { insufficientPrivilege } from "../../shared/postgres/sqlStates.js";
import { toReport } from "../../shared/errors.js";
import {
  databaseOf,
  isSameDatabase,
  readReleased,
  releaseDatabase,
  serveDatabase,
  type DatabaseName,
} from "../../supervisor/releasedDatabases.js";
import { readCluster } from "../../tasks/queries/clusterProcesses.js";
import { commandExitCodes } from "../support/exitCodes.js";
import { loadForCommand, withClient } from "../support/openTable.js";
import type { CommandOptions } from "../support/options.js";
import { databaseNames, isControlDatabase } from "../support/released.js";
import type { Terminal } from "../terminal/terminal.js";

interface ReleaseOptions extends CommandOptions {
  readonly reason?: string;
}

const pollMs = 200;
/** How much longer than its tasks may take a leader may take to close its connections, in ms. */
const marginMs = 30_000;
/** How long connections may take to end that the leader has closed, or another process has, in ms. */
const closingMs = 5_000;

export async function release(terminal: Terminal, name: string, options: ReleaseOptions): Promise<number> {
  const configuration = await loadForCommand(terminal, options);
  const entry = findDatabase(configuration, name);
  if (isControlDatabase(configuration, entry)) {
    throw new PgTaskError(
      "USAGE",
      `database ${name} is the control database, to which pg-task has to stay connected: stop pg-task instead, or give it another control database ("url" in pg_task.json)`,
    );
  }
  return await onControl(configuration, "release", async (control) => {
    const database = databaseOf(entry);
    const isNew = await releaseDatabase(control, configuration, { ...database, reason: options.reason ?? null });
    const graceS = configuration.parameters["pg_conf.grace"] / 1000;
    if (options.json !== true)
      terminal.showProgress(`waiting until its running tasks have ended, at most ${graceS} s (pg_conf.grace)`);
    const outcome = await waitUntilFree(control, configuration, database);
    // Sessions on another server are not visible here.
    const sessions = database.server === "" ? await readSessions(control, database.database) : [];
    terminal.showProgress(null);
    if (options.json === true) {
      terminal.write(`${jsonText({ ...database, released: isNew, free: outcome === "free", sessions })}\n`);
    } else {
      const state = isNew ? "is released" : "was released already";
      terminal.write(`database ${printableLine(name)} ${state}: ${meanings[outcome]}\n`);
      for (const session of sessions)
        terminal.writeError(`still connected: ${printableLine(describeSession(session))}\n`);
    }
    return outcome === "late" ? commandExitCodes.notAll : commandExitCodes.done;
  });
}

const meanings = {
  free: "pg-task has no connection to it; pg-task serve ends that",
  unled: "no pg-task runs now, and one that starts leaves it alone; pg-task serve ends that",
  late: "but the leader has not said that its connections are closed, see its log",
} as const;

export async function serve(terminal: Terminal, name: string, options: CommandOptions): Promise<number> {
  const configuration = await loadForCommand(terminal, options);
  return await onControl(configuration, "serve", async (control) => {
    // One that was removed from the configuration, or renamed, can still be on the list.
    const listed = (await readReleased(control, configuration)).filter(({ database }) => database === name);
    const [only, ...others] = listed;
    const database = only !== undefined && others.length === 0 ? only : databaseOf(findDatabase(configuration, name));
    const isChanged = await serveDatabase(control, configuration, database);
    if (options.json === true) {
      terminal.write(`${jsonText({ server: database.server, database: database.database, served: isChanged })}\n`);
    } else terminal.write(`database ${printableLine(name)} ${isChanged ? "is served again" : "was not released"}\n`);
    return commandExitCodes.done;
  });
}

/** @throws PgTaskError USAGE unless the name is that of exactly one database */
function findDatabase({ entries }: Configuration, name: string): Entry {
  const matching = entries.filter((entry) => databaseNames(entry).includes(name));
  const [first] = matching;
  if (first !== undefined && matching.every((entry) => isSameDatabase(databaseOf(entry), databaseOf(first)))) {
    return first;
  }
  const place = first === undefined ? 0 : 1;
  const names = new Set((first === undefined ? entries : matching).map((entry) => databaseNames(entry)[place]));
  const problem = first === undefined ? `no entry has a database ${name}` : `several servers have a database ${name}`;
  throw new PgTaskError("USAGE", `${problem}; expected one of: ${[...names].join(", ")}`);
}

async function onControl(
  configuration: Configuration,
  command: string,
  work: (control: Client) => Promise<number>,
): Promise<number> {
  try {
    return await withClient(configuration.control, command, work, true);
  } catch (error) {
    const { message, sqlState } = toReport(error);
    if (sqlState !== insufficientPrivilege) throw error;
    const { database, user } = configuration.control;
    const schema = configuration.parameters["pg_task.schema"];
    throw new PgTaskError(
      "SCHEMA_NOT_ALLOWED",
      `the list of released databases is the table ${schema}.pg_task_released in the control database ${database}: ${message}; give role ${user} CREATE on that schema, or the table`,
      { sqlState },
    );
  }
}

async function waitUntilFree(
  control: Client,
  configuration: Configuration,
  database: DatabaseName,
): Promise<keyof typeof meanings> {
  const { "pg_conf.grace": graceMs, "pg_conf.name": cluster } = configuration.parameters;
  const until = performance.now() + graceMs + marginMs;
  let unledSince: number | null = null;
  while (performance.now() < until) {
    const found = (await readReleased(control, configuration)).find((each) => isSameDatabase(each, database));
    if (found?.isFree === true) return "free";
    // A standby takes over soon.
    const { leader } = await readCluster(control, cluster);
    unledSince = leader === null ? (unledSince ?? performance.now()) : null;
    if (unledSince !== null && performance.now() - unledSince > closingMs) return "unled";
    await pause(pollMs);
  }
  return "late";
}

interface Session {
  readonly pid: number;
  readonly user: string | null;
  readonly name: string | null;
  readonly isPgTask: boolean;
}

const describeSession = ({ pid, user, name }: Session): string =>
  `server process ${pid} of role ${user ?? "?"}${name === null || name === "" ? "" : ` (${name})`}`;

/** The sessions in a database, when those of pg-task have had time to end. */
async function readSessions(control: Client, database: string): Promise<readonly Session[]> {
  const until = performance.now() + closingMs;
  for (;;) {
    const { rows } = await control.query<Session>(
      `SELECT a.pid, a.usename AS "user", a.application_name AS name,
         coalesce(${isPgTaskSql("a.application_name")}, false) AS "isPgTask"
       FROM pg_catalog.pg_stat_activity AS a WHERE a.datname = $1 AND a.usesysid IS NOT NULL ORDER BY a.pid`,
      [database],
    );
    if (performance.now() > until || !rows.some(({ isPgTask }) => isPgTask)) return rows;
    await pause(pollMs);
  }
}
