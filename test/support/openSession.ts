import {
  ExecutorThreads,
  type ExecutorThread,
} from "../../src/manager/sessions/executorThreads.js";
import { ActiveGroups } from "../../src/manager/groups/groups.js";
import { RunTimes } from "../../src/manager/sessions/runTimes.js";
import { SessionPool } from "../../src/manager/sessions/sessionPool.js";
import type { ClaimedTask } from "../../src/manager/claim/claimedTask.sql.js";
import type { ToExecutor } from "../../src/shared/ipc/messages.js";
import { silentLog as log } from "./taskTables.js";

const nothing = (): void => {};

/** The server process of the session. */
export const pid = 4711;

/** A task of its group that may run alone only, as a claim returns it. */
function task(id: string): ClaimedTask {
  return {
    id,
    owner: "1",
    hash: 1,
    max: 0,
    front: false,
    alone: false,
    pauses: false,
    repeats: false,
    input: "SELECT 1",
    group: "group",
    timeoutMs: 0,
    keep: false,
    save: false,
    format: { header: true, string: true, delimiter: "\t", quote: "", escape: "", null: "\\N" },
    atomic: true,
    take: "2026-01-01T00:00:00Z",
    remote: null,
    data: null,
    version: "1",
  };
}

/** A session that is open, number 1, and what its thread is told. */
export function openSession() {
  const thread: ExecutorThread = Object.create(null);
  const told: ToExecutor[] = [];
  const revoked: number[] = [];
  const groups = new ActiveGroups();
  const executors: ExecutorThreads = Object.create(ExecutorThreads.prototype, {
    threads: { value: new Set([thread]) },
    tell: { value: (_: ExecutorThread, message: ToExecutor) => told.push(message) },
    dispatch: { value: nothing },
  });
  const sessions = new SessionPool({
    executors,
    groups,
    runTimes: new RunTimes(),
    maxThreads: () => 1,
    mayUseMore: () => false,
    events: {
      changed: nothing,
      result: nothing,
      started: nothing,
      remote: nothing,
      lost: nothing,
      silent: nothing,
      recall: nothing,
      permit: nothing,
      revoke: (permit) => revoked.push(permit),
      lacking: nothing,
      opened: nothing,
      unopened: nothing,
      cancel: nothing,
    },
    log,
  });
  sessions.open(1);
  sessions.receive(thread, { type: "opened", session: 1, backend: { pid, owner: "1" } });
  const of = <Type extends ToExecutor["type"]>(type: Type) =>
    told.filter((message): message is Extract<ToExecutor, { type: Type }> => message.type === type);
  return {
    sessions,
    groups,
    revoked,
    permits: () => of("permit").map(({ permit }) => permit),
    /** Of each recall which runs it calls back. */
    recalled: () => of("recall").flatMap(({ runs }) => runs.map(({ ids }) => ids)),
    /** Gives it tasks with these ids. */
    assign: (...ids: string[]): void => {
      const runs = ids.map((id) => ({
        session: 1,
        ledger: 1 as const,
        shown: true,
        task: task(id),
      }));
      sessions.assign(runs);
    },
    receive: (message: Parameters<SessionPool["receive"]>[1]) => sessions.receive(thread, message),
  };
}
