import type { SessionPoolEvents } from "../../src/manager/sessions/session.js";
import type { ExecutorParameters } from "../../src/shared/ipc/executorMessages.js";
import type { OutputFormat, Run } from "../../src/shared/ipc/run.js";
import type { ConnectionTarget } from "../../src/shared/postgres/target/target.js";

const nothing = (): void => {};

/** The output format that results from the default values of the task table's columns. */
export const defaultFormat: OutputFormat = {
  header: true,
  string: true,
  delimiter: "\t",
  quote: "",
  escape: "",
  null: "\\N",
};

export const defaultRun: Run = {
  session: 1,
  id: "1",
  input: "SELECT 1",
  args: null,
  results: null,
  group: "group",
  timeoutMs: 0,
  dedicated: false,
  save: false,
  ...defaultFormat,
  atomic: false,
  claimedAt: "0",
  ledger: 1,
  remote: null,
  endsWithConnection: false,
  reportsStart: false,
};

/** The parameters of executors for the table `public.task` of this database. */
export const executorParameters = (target: ConnectionTarget): ExecutorParameters => ({
  target,
  schema: "public",
  table: "task",
  finishFunction: "public.task_finish",
  resetFunction: "public.task_reset",
  ledgers: ["public.task_ledger_1", "public.task_ledger_2"],
  homeTable: "public.task_home",
  outputLimit: 64 << 20,
  isSuperuser: true,
  lostRunTimeoutMs: 3_600_000,
  serverStart: null,
});

export const noSessionEvents: SessionPoolEvents = {
  changed: nothing,
  result: nothing,
  started: nothing,
  remote: nothing,
  lost: nothing,
  silent: nothing,
  objectMissing: nothing,
  opened: nothing,
  openFailed: nothing,
  cancel: nothing,
};
