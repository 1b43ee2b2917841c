import { ExecutorThreads, type ExecutorThread } from "../../src/manager/sessions/executorThreads.js";
import { ActiveGroups } from "../../src/manager/groups/groups.js";
import { RunTimes } from "../../src/manager/sessions/runTimes.js";
import { SessionPool } from "../../src/manager/sessions/sessionPool.js";
import type { ToExecutor } from "../../src/shared/ipc/executorMessages.js";
import { defaultRun, noSessionEvents } from "./executors.js";
import { silentLog as log } from "./taskTables.js";
import type { ClaimedTask } from "../../src/manager/model/tasks.js";

export const pid = 4711;

function task(id: string): ClaimedTask {
  return {
    ...defaultRun,
    id,
    owner: "1",
    hash: 1,
    key: null,
    max: 0,
    startsNow: true,
    exclusive: false,
    mayPause: false,
    endsPlainly: true,
    overlaps: false,
    planned: null,
    data: null,
    version: "1",
  };
}

/**
 * Creates a session pool in which session 1 is open, or so many sessions from 1 on, and collects the messages that are
 * sent to their thread. The backend of session 1 has the pid above.
 */
export function openSession(count = 1) {
  const thread: ExecutorThread = Object.create(null);
  const sent: ToExecutor[] = [];
  const groups = new ActiveGroups();
  const runTimes = new RunTimes();
  const executors: ExecutorThreads = Object.create(ExecutorThreads.prototype, {
    threads: { value: new Set([thread]) },
    send: { value: (_: ExecutorThread, message: ToExecutor) => sent.push(message) },
    dispatch: { value: () => {} },
  });
  const sessions = new SessionPool({
    executors,
    groups,
    runTimes,
    maxThreads: () => 1,
    mayUseMore: () => false,
    slowMs: () => 0,
    events: noSessionEvents,
    log,
  });
  sessions.open(count);
  for (let session = 1; session <= count; session += 1) {
    const backend = { pid: pid + session - 1, owner: String(session) };
    sessions.receive(thread, { type: "opened", session, backend });
  }
  const of = <Type extends ToExecutor["type"]>(type: Type) =>
    sent.filter((message): message is Extract<ToExecutor, { type: Type }> => message.type === type);
  return {
    sessions,
    groups,
    executors,
    runTimes,
    closed: () => of("close").flatMap((message) => message.sessions),
    permits: () => of("pipelinePermit").map(({ permit }) => permit),
    /** Returns, for each recall, the ids of the tasks to take back. */
    recalled: () => of("recall").flatMap(({ runs }) => runs.map(({ ids }) => ids)),
    assign: (...ids: string[]): void => {
      sessions.assign(ids.map(task), () => 1);
    },
    receive: (message: Parameters<SessionPool["receive"]>[1]) => sessions.receive(thread, message),
  };
}
