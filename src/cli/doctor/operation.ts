import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { readBacklog } from "../../tasks/queries/counts.js";
import { readOrphans, areMoreRejected, readRejectedResults } from "../../tasks/queries/unsettledTasks.js";
import { readPauses, type Pause, readPausedSchedules, type PausedSchedules } from "../../tasks/pauses.js";
import { stopAndRetry } from "../../tasks/commands/describeChange.js";
import {
  describeForeignHolder,
  readTableLock,
  remedyOfHolder,
  type ForeignHolder,
  type ServerProcess,
} from "../../tasks/queries/clusterProcesses.js";
import { readWebhooks } from "../../tasks/queries/webhooks.js";
import { describeWebhook } from "../support/describeWebhook.js";
import { nameSchedule } from "../../tasks/queries/schedules.js";
import { howToResume, shellWord } from "../support/pastedCommands.js";
import { formatCount } from "../terminal/format.js";
import { fail, ok, warn, type Finding, checkWaiting } from "../inspection.js";
import { describeCount, isSome } from "../../shared/count.js";
import { describeSuspension } from "../../shared/describeSchedule.js";
import { formatDuration } from "../../shared/formatDuration.js";
import { lostDependencies } from "../../manager/schema/lostDependencies.sql.js";
import { hasSchedule } from "../../manager/schema/schedulesView.sql.js";

export async function checkManager(client: Client, table: TaskTable): Promise<Finding> {
  const { manager: found, foreignHolder } = await readTableLock(client, table);
  if (foreignHolder !== null) return warnForeignHolder("manager", foreignHolder);
  const waiting = (await readWaitingManagers(client, table)).filter(({ pid }) => pid !== found?.pid);
  if (found !== null && waiting.length > 0) {
    return warn(
      "manager",
      `${describeManager(found)} serves the table, and another pg-task waits for it: ${waiting.map(describeManager).join("; ")}`,
      "both have an entry for the table, and another control database or pg_conf.name: end one of the two, or give them the same",
    );
  }
  if (found !== null) return ok("manager", `server process ${found.pid}`);
  return fail("manager", "no manager serves the table", "start pg-task, or see its log for why the manager waits");
}

/** A backend that is no pg-task keeps the tasks from running. One with the name of a pg-task may be one. */
export function warnForeignHolder(name: string, holder: ForeignHolder): Finding {
  const report = holder.isPgTask ? warn : fail;
  return report(name, describeForeignHolder(holder), remedyOfHolder(holder));
}

type ManagerProcess = Pick<ServerProcess, "pid" | "address">;

const describeManager = ({ pid, address }: ManagerProcess): string =>
  `server process ${pid}${address === null ? "" : ` of ${address}`}`;

/** Only those that have waited for long: at each handover, one waits for a moment. Other roles' are not seen. */
async function readWaitingManagers(client: Client, { schema, table }: TaskTable): Promise<ManagerProcess[]> {
  const { rows } = await client.query<ManagerProcess>(
    `SELECT a.pid, host(a.client_addr) AS address FROM pg_catalog.pg_stat_activity AS a
     WHERE a.datname = current_database() AND a.query LIKE '%pg\\_try\\_advisory\\_lock%'
       AND starts_with(a.application_name, left($1, 60)) AND a.backend_start < clock_timestamp() - interval '10 seconds'
     ORDER BY a.backend_start, a.pid`,
    [`pg_work ${schema} ${table} `],
  );
  return rows;
}

/** A task that has been due for longer than this, in ms, is not just waiting for its turn. */
const overdueMs = 60_000;

export async function checkBacklog(client: Client, table: TaskTable): Promise<Finding> {
  const { due, oldestDueMs } = await readBacklog(client, table);
  if (isSome(due) === false) return ok("backlog", "nothing is due");
  const text = `${describeCount(due, { about: "about", format: String })} due, the oldest for ${oldestDueMs === null ? "ever" : formatDuration(oldestDueMs)}`;
  if (oldestDueMs !== null && oldestDueMs < overdueMs) return ok("backlog", text);
  return warn("backlog", text, "pg-task groups shows where they wait, pg-task why says why");
}

export async function checkPauses(client: Client, table: TaskTable): Promise<Finding[]> {
  const groups = await readPauses(client, table);
  const schedules = await readPausedSchedules(client, table);
  const checks = [
    ...(groups.length === 0 ? [] : [pausedGroups(groups)]),
    ...(schedules.count === 0 ? [] : [pausedSchedules(schedules)]),
  ];
  return checks.length === 0 ? [ok("pauses", "none")] : checks;
}

function pausedGroups(pauses: readonly Pause[]): Finding {
  const list = pauses.map(
    ({ group, reason }) =>
      `${group === null ? "the whole table" : JSON.stringify(group)}${reason === null ? "" : ` (${reason})`}`,
  );
  const commands = pauses.map(({ group }) => `pg-task resume${group === null ? "" : ` --group ${shellWord(group)}`}`);
  return warn("pauses", `paused: ${list.join(", ")}`, `resume with ${commands.join(", ")}`);
}

function pausedSchedules(paused: PausedSchedules): Finding {
  const { count, first } = paused;
  const names = first.map((schedule) => {
    const { suspendedAfter } = schedule;
    const name = nameSchedule(schedule);
    return suspendedAfter === null ? name : `${name}, ${describeSuspension(suspendedAfter)}`;
  });
  const rest = count > first.length ? [`${count - first.length} more`] : [];
  const list = [...names, ...rest].join(", ");
  return warn("pauses", `paused: ${formatCount(count, "schedule")}: ${list}`, howToResume(paused));
}

export async function checkWebhooks(client: Client, table: TaskTable): Promise<Finding[]> {
  const webhooks = await readWebhooks(client, table);
  return webhooks.map((webhook) => {
    const text = describeWebhook(webhook);
    if (webhook.failures === 0) return ok("webhooks", text);
    return warn("webhooks", text, "see the log of the receiver; what waits is sent when it answers");
  });
}

export async function checkOrphans(client: Client, table: TaskTable): Promise<Finding> {
  const found = await readOrphans(client, table);
  if (found === null) return ok("orphans", "not checked: the table is too large to scan");
  if (found.length === 0) return ok("orphans", "none");
  const rejected = (await areMoreRejected(client, table))
    ? "; some may be tasks whose results the server rejects, of which not all can be told from orphans"
    : "";
  const unowned = found.filter(({ owned }) => !owned).map(({ id }) => id);
  const remedies = [
    ...(unowned.length === 0 ? [] : [`${stopAndRetry(unowned)} runs what never had a session (${unowned.join(", ")})`]),
    ...(unowned.length === found.length
      ? []
      : [
          'a manager releases those of a lost session within seconds, or within pg_task.reset; if it does not, the log may say "rescue rejected by the server, retrying"',
        ]),
  ];
  return warn(
    "orphans",
    `in TAKE or WORK without a session: ${found.map(({ id }) => id).join(", ")}${rejected}`,
    remedies.join("; "),
  );
}

export async function checkResults(client: Client, table: TaskTable): Promise<Finding> {
  const { ids, others, more } = await readRejectedResults(client, table);
  if (ids?.length === 0) return ok("results", "none is rejected by the server");
  const listed = ids?.join(", ") ?? "ids unknown, the table is too large to scan";
  const rest =
    others === 0 && !more ? "" : ` and ${more ? "at least " : ""}${others} ${others === 1 ? "other" : "others"}`;
  const unknown = more ? "; further ones look like running tasks or orphans" : "";
  return warn(
    "results",
    `the runs of these tasks have ended, and the server rejects their results: ${listed}${rest}${unknown}`,
    'a trigger or constraint of yours refuses to change their rows: the log says which ("result rejected by the server, retrying"); the manager keeps the results, and writes them within a minute once it can',
  );
}

const maxShown = 10;

/**
 * Earlier versions have put off rows a second time that were loaded from a dump with `--data-only`. The plan of a
 * schedule at infinity is a pause, which another check reports.
 */
const neverPlanned = ({ qualified }: TaskTable): string => `
  SELECT t.id FROM ${qualified} AS t
  WHERE NOT t.ready AND t.plan >= 'infinity' AND t.after IS NOT NULL AND t.state::text = 'PLAN' AND t.owner IS NULL
    AND (t.wait IS NULL OR t.due = 'infinity') AND NOT ${hasSchedule("t")}
  ORDER BY t.id`;

/** Meant for a table whose tasks can wait for others. */
export async function checkOrder(client: Client, table: TaskTable): Promise<Finding> {
  const { qualified } = table;
  const lost = await readIds(client, `WITH ${lostDependencies(table)} SELECT id FROM lost ORDER BY id`);
  if (lost !== null) {
    return warn(
      "order",
      `waiting for others, but their rows in ${table.qualifiedDependencies} were deleted: ${lost.shown}`,
      `a manager looks the others up again when it starts, and within about a minute of the next change; or UPDATE ${qualified} SET after = after || after WHERE id IN (${lost.ids})`,
    );
  }
  const unplanned = await readIds(client, neverPlanned(table));
  if (unplanned !== null) {
    return warn(
      "order",
      `planned for infinity once those that they wait for have ended, so that nothing starts them: ${unplanned.shown}`,
      `unless this is meant (they may have been loaded from a dump by an earlier version), UPDATE ${qualified} SET plan = now() WHERE id IN (${unplanned.ids})`,
    );
  }
  return (await checkWaiting(client, table)) ?? ok("order", "no task waits in vain");
}

async function readIds(
  client: Client,
  query: string,
): Promise<{ readonly ids: string; readonly shown: string } | null> {
  const { rows } = await client.query<{ id: string }>(
    `SELECT q.id::text AS id FROM (${query} LIMIT ${maxShown + 1}) AS q`,
  );
  if (rows.length === 0) return null;
  const ids = rows
    .slice(0, maxShown)
    .map(({ id }) => id)
    .join(", ");
  return { ids, shown: rows.length > maxShown ? `${ids} and others` : ids };
}
