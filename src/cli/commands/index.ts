import type { Argument, Option } from "commander";
import { finalStates, taskStates, type TaskState } from "../../shared/taskState.js";
import { columnOptions, parseSet, keyTakenChoices } from "../support/columnOptions.js";
import { completeValuesName, shells, sources, valueKinds } from "../definitions.js";
import {
  argument,
  collecting,
  configOption,
  ids,
  integerParser,
  jsonOption,
  keyRoleOption,
  limit,
  oneTask,
  option,
  parseId,
  parsePort,
  pausedOptions,
  tableName,
  yes,
} from "../support/options.js";
import type { Terminal } from "../terminal/terminal.js";

interface CommandRow {
  /** What it does. Commands without a summary are hidden. */
  readonly summary?: string;
  readonly aliases?: readonly string[];
  readonly arguments?: readonly Argument[];
  readonly options?: readonly Option[];
  readonly table?: true;
  /** The states of the tasks that its filter can select. Without them, it has no filter. */
  readonly filter?: readonly TaskState[];
  /** Calls without `pg-task`, which the help shows. A test runs them. */
  readonly examples: readonly string[];
  /** A line of the help below the options. */
  readonly notes?: string;
  /**
   * Loading all code takes several times as long as most commands run. It gets terminal, arguments, options, command.
   */
  readonly load: () => Promise<(terminal: Terminal, ...given: never[]) => Promise<number>>;
}

const waitNotes = "exit codes 0 (DONE), 10 (FAIL), 11 (GONE), 12 (STOP), 13 (the row was deleted)";

/** All commands, in the order of the help. */
export const commands: Readonly<Record<string, CommandRow>> = {
  start: {
    summary: "run tasks until stopped",
    options: [
      configOption(),
      option("--embedded", "start an embedded PostgreSQL and use it"),
      option("--data <dir>", "data directory of the embedded PostgreSQL (default: .pg-task/data)"),
      option("--port <n>", "port of the embedded PostgreSQL (default: a free one)", parsePort),
    ],
    examples: ["start", "start --config /etc/pg-task/pg_task.json", "start --embedded"],
    load: async () => (await import("./start.js")).start,
  },
  check: {
    summary: "validate and explain the configuration; changes nothing",
    options: [configOption(), option("--all", "list also the parameters that have their defaults"), jsonOption()],
    examples: ["check", "check --json"],
    load: async () => (await import("./check.js")).check,
  },
  init: {
    summary: "write a commented configuration file; never overwrites one",
    options: [configOption("file to write (default: ./pg_task.json)"), jsonOption()],
    examples: ["init"],
    load: async () => (await import("./init.js")).init,
  },
  status: {
    summary: "show leader, managers, sessions, backlog and throughput",
    table: true,
    examples: ["status", "status --json"],
    load: async () => (await import("../status.js")).showStatus,
  },
  list: {
    summary: "list tasks, newest first",
    options: [
      limit(50),
      option("--before <id>", "continue below this id", parseId),
      option("--waiting-for <id>", "that wait for the end of this task", parseId),
      option("--schedules", "list schedules instead, by planned time: with --group, --key, --text, --since, --until"),
    ],
    table: true,
    filter: taskStates,
    examples: ["list --limit 20", "list --state FAIL,GONE --text timeout", "list --key 'order 42'", "list --schedules"],
    load: async () => (await import("./list.js")).list,
  },
  show: {
    summary: "show all columns of a task, its ancestors and descendants, and what waits for what",
    arguments: oneTask.arguments,
    options: [option("--full", "do not truncate long values and chains on a terminal"), ...oneTask.options],
    table: true,
    examples: ["show 1", "show --key 'order 42'"],
    load: async () => (await import("./show.js")).show,
  },
  next: {
    summary: "show the next times of a rule: a cron expression or an RRULE",
    arguments: [argument("<rule>", "the rule, such as '30 2 * * MON-FRI'")],
    options: [
      option("-z, --zone <zone>", "time zone of the rule (default: pg_task.zone, or the database's)"),
      option("-n, --count <n>", "at most this many", integerParser(1, 1000)).default(10),
      option("--since <time>", "after this time, in PostgreSQL's syntax and the rule's zone (default: now)"),
    ],
    table: true,
    examples: ["next '0 4 * * 1' --zone Europe/Berlin", "next 'FREQ=MONTHLY;BYDAY=-1FR' --count 3"],
    load: async () => (await import("./next.js")).next,
  },
  add: {
    summary: "add a task; omitted columns take their defaults",
    arguments: [argument("[sql]", "the SQL to run; omitted or -: read standard input")],
    options: [
      option("-f, --file <file>", "read the SQL from a file; -: standard input"),
      option("-w, --wait", "wait until it ends, print its output, exit with a code for its state"),
      option("--in <interval>", "start after this interval"),
      ...columnOptions(),
      option("--if-key-taken <what>", "if a task with its key waits: fail, or add nothing")
        .choices(keyTakenChoices)
        .default("error"),
      option("--set <column=value>", "any other column, such as one of your own; repeatable", collecting(parseSet)),
    ],
    table: true,
    notes: `With --wait: ${waitNotes}`,
    examples: [
      "add 'REFRESH MATERIALIZED VIEW sales'",
      "add 'SELECT 1' --group mail --plan '2030-01-01 08:00+00'",
      "add 'SELECT now()' --rule '0 4 * * *'",
      "add 'CALL ship(42)' --key 'order 42' --if-key-taken skip",
    ],
    load: async () => (await import("./add.js")).add,
  },
  wait: {
    summary: "wait until a task ends, print its output, exit with a code for its state",
    ...oneTask,
    table: true,
    notes: waitNotes,
    examples: ["wait 1", "wait --key 'order 42'"],
    load: async () => (await import("./awaitEnd.js")).wait,
  },
  apply: {
    summary: "bring the schedules with keys to what a file with jobs says, in one transaction",
    arguments: [argument("<file>", "JSON file with the jobs; -: standard input")],
    options: [
      option("--dry-run", "only show what would change"),
      option("--prune", "end the schedules that the file does not name, of those whose keys begin with its prefix"),
      yes("do not ask before schedules end"),
    ],
    table: true,
    examples: ["apply jobs.json --dry-run", "apply jobs.json --prune --yes"],
    load: async () => (await import("./apply.js")).apply,
  },
  import: {
    summary: "show what becomes of the jobs of another scheduler here, and move them",
    arguments: [
      argument("<source>", "from where").choices(sources),
      argument("[file]", "for crontab and ics; -: standard input"),
    ],
    options: [
      option("--apply", "do it: switch the jobs off there, and start them here"),
      option("--back", "switch the jobs on there, and end them here"),
      option("--dry-run", "only show what --back would do"),
      option("--from <url>", "the database of the scheduler (default: that of the table)"),
      option("--any-owner", "also jobs of other roles, which then run as the entry's user"),
      option("--runs <n>", "copy the last runs of each job, this many", integerParser(0, 100_000)).default(20),
      option("--zone <zone>", "zone of the crontab, or of events without one (default: that of this machine)"),
    ],
    table: true,
    examples: ["import pg_cron", "import crontab jobs.cron", "import ics events.ics --apply"],
    load: async () => (await import("./import.js")).importJobs,
  },
  stop: {
    summary: "stop tasks: cancel running ones, keep waiting ones from running",
    arguments: [ids()],
    options: [option("--key <key>", "those that wait or run with this key, instead of ids"), keyRoleOption()],
    table: true,
    examples: ["stop 1", "stop 2 3", "stop --key 'order 42'"],
    load: async () => (await import("./changeTasks.js")).stop,
  },
  retry: {
    summary: "run finished tasks again in their own rows: by id, all in given states, or the newest with a key",
    arguments: [ids()],
    options: [yes("do not ask")],
    table: true,
    filter: finalStates,
    examples: [
      "retry 4",
      "retry 4 --state FAIL",
      "retry --state FAIL --yes",
      "retry --key 'order 42' --state FAIL,GONE",
    ],
    load: async () => (await import("./changeTasks.js")).retry,
  },
  "run-now": {
    summary: "plan waiting tasks for now; group limits and pauses still apply",
    arguments: [ids()],
    options: [option("--key <key>", "the one that waits with this key, instead of ids"), keyRoleOption()],
    table: true,
    examples: ["run-now 5", "run-now --key 'order 42'"],
    load: async () => (await import("./changeTasks.js")).runNow,
  },
  delete: {
    summary: "delete tasks",
    arguments: [ids()],
    options: [
      option("--key <key>", "all with this key, instead of ids"),
      keyRoleOption(),
      option("--running", "also running ones, which are cancelled"),
      yes("do not ask if several tasks have the key"),
    ],
    table: true,
    examples: ["delete 6"],
    load: async () => (await import("./changeTasks.js")).deleteTasks,
  },
  pause: {
    summary: "start no more tasks of a table, a group or a schedule; running ones finish",
    arguments: [tableName()],
    options: [...pausedOptions(), option("--reason <text>", "shown to other users; not with --schedule or --key")],
    table: true,
    examples: ["pause --group mail --reason 'server moves'", "pause"],
    load: async () => (await import("./pauseResume.js")).pause,
  },
  resume: {
    summary: "start tasks of a table, a group or a schedule again",
    arguments: [tableName()],
    options: pausedOptions(),
    table: true,
    examples: ["resume --group mail", "resume"],
    load: async () => (await import("./pauseResume.js")).resume,
  },
  release: {
    summary: "leave a database for maintenance: end its tasks, close all connections to it, until serve",
    arguments: [argument("<database>", "its name; HOST:PORT/NAME if several servers have one of this name")],
    options: [configOption(), option("--reason <text>", "shown to other users"), jsonOption()],
    examples: ["release shop --reason 'copy for tests'"],
    load: async () => (await import("./release.js")).release,
  },
  serve: {
    summary: "run tasks again in a database that was left with release",
    arguments: [argument("<database>", "as for release")],
    options: [configOption(), jsonOption()],
    examples: ["serve shop"],
    load: async () => (await import("./release.js")).serve,
  },
  "accept-copy": {
    summary: "let the tasks of a copied table run here; until then, nothing in a copy starts",
    arguments: [tableName()],
    options: [
      option("--stop-schedules", "stop the waiting runs of all schedules first").conflicts("stopAll"),
      option("--stop-all", "stop all waiting and running tasks first"),
    ],
    table: true,
    examples: ["accept-copy", "accept-copy --stop-schedules"],
    load: async () => (await import("./acceptCopy.js")).accept,
  },
  facade: {
    summary: "create the functions of another scheduler, which then plan jobs of this table",
    arguments: [argument("<scheduler>", "whose functions").choices(["cron"])],
    table: true,
    examples: ["facade cron"],
    load: async () => (await import("./facade.js")).facade,
  },
  prune: {
    summary: "delete tasks that finished some time ago, in small batches",
    options: [
      option("--older <interval>", "finished longer ago than this, such as '30 days'").makeOptionMandatory(),
      option("--dry-run", "only count them"),
      yes("do not ask"),
    ],
    table: true,
    filter: finalStates,
    examples: ["prune --older '30 days' --dry-run", "prune --older '30 days' --yes"],
    load: async () => (await import("./changeTasks.js")).prune,
  },
  groups: {
    summary: "list groups that have running or waiting tasks or are paused",
    options: [limit(100)],
    table: true,
    examples: ["groups"],
    load: async () => (await import("./list.js")).listGroups,
  },
  watch: {
    summary: "watch a table live on the terminal; q quits. --json prints a line of JSON per update",
    options: [option("--interval <s>", "seconds between updates", integerParser(1, 3600)).default(1)],
    table: true,
    filter: taskStates,
    examples: ["watch", "watch --interval 5"],
    load: async () => (await import("./watch.js")).watch,
  },
  why: {
    summary: "explain why a task is not running",
    aliases: ["explain-plan", "explain"],
    arguments: oneTask.arguments,
    options: oneTask.options,
    table: true,
    examples: ["why 1", "why --key 'order 42'"],
    load: async () => (await import("./show.js")).why,
  },
  doctor: {
    summary: "find problems and suggest remedies; changes nothing",
    table: true,
    examples: ["doctor"],
    load: async () => (await import("./doctor.js")).doctor,
  },
  completion: {
    summary: "print a script that completes commands and options in your shell",
    arguments: [argument("<shell>", "your shell").choices(shells)],
    examples: ["completion bash"],
    load: async () => (await import("./completion.js")).completion,
  },
  manual: {
    summary: "print the manual page, for man -l -",
    examples: ["manual"],
    load: async () => (await import("./manual.js")).manual,
  },
  [completeValuesName]: {
    arguments: [
      argument("<shell>").choices(shells),
      argument("<kind>").choices(valueKinds),
      argument(
        "[words...]",
        "the words of the command line up to the one to complete; bash's with their quotes, and then the end of the last one that readline replaces",
      ),
    ],
    examples: [],
    load: async () => (await import("./completion.js")).completeValues,
  },
};
