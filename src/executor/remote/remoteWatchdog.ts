import { sleep } from "../../shared/backoff.js";
import type { RemoteConnection } from "./connectRemote.js";
import type { ManagerServer } from "./managerServerLimit.js";
import type { RemoteTarget } from "./remoteTarget.js";
import { standsStill } from "./remoteProcess.js";

/** After how long without a word a run's server is asked, in ms: at first, and after many times. */
const quietMs = { first: 1_000, longest: 30_000 };

/**
 * Watches over a run's connection, which never ends by itself when a network swallows it: when nothing
 * comes for a while, its server is asked, and asked ever more seldom while the run goes on there.
 * Behind a pooler it cannot be: another of its processes may run what this one is thought to.
 *
 * @returns whether it is cut off; false on abort.
 */
export async function isHalfOpen(
  target: RemoteTarget,
  { wire, place }: RemoteConnection,
  asking: { readonly ownServer: ManagerServer; readonly signal: AbortSignal },
): Promise<boolean> {
  if (wire.pid !== place.pid) return false;
  let askMs = quietMs.first;
  while (await sleep(askMs, asking.signal)) {
    const silentMs = await wire.silentMs();
    if (silentMs < askMs) askMs = quietMs.first;
    else if ((await standsStill(target, place, asking)) === true) {
      if ((await wire.silentMs()) >= silentMs) return true;
    } else askMs = Math.min(2 * askMs, quietMs.longest);
  }
  return false;
}
