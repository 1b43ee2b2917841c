import { LostRemoteRuns } from "../../src/manager/recovery/lostRemoteRuns.js";
import { createLog } from "../../src/shared/log.js";

/** Creates a `LostRemoteRuns` for tests without remote tasks. */
export function noRemoteRuns(): LostRemoteRuns {
  return new LostRemoteRuns({
    isProcessGone: () => Promise.reject(new Error("unexpected remote task")),
    onGone: () => {},
    resetMs: () => Infinity,
    log: createLog({ level: "silent", name: "test", write: () => {} }),
  });
}
