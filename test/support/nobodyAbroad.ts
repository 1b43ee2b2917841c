import { LostRemoteRuns } from "../../src/manager/recovery/lostRemoteRuns.js";
import { createLog } from "../../src/shared/log.js";

/** For tests without remote tasks. */
export function nobodyAbroad(): LostRemoteRuns {
  return new LostRemoteRuns({
    seek: () => Promise.reject(new Error("a remote task that this test does not know")),
    changed: () => {},
    resetMs: () => Infinity,
    log: createLog({ level: "silent", name: "test", write: () => {} }),
  });
}
