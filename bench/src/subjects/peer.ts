import { fork, type ChildProcess } from "node:child_process";
import { isDeepStrictEqual } from "node:util";
import { end, endWithUs, message } from "../childProcess.js";
import { one, type Database } from "../database.js";
import { folders } from "../folders.js";
import { isFromPeer, type FromPeer, type PeerArguments, type ToPeer } from "../peers/protocol.js";
import { until } from "../until.js";
import { groupExpression, type Work } from "../work.js";
import { drain, makeSink, type Queue } from "./drain.js";
import type { Subject } from "./subject.js";

/** A queue library for Node, which runs in a separate process. */
export interface Peer {
  /** Name of its module in the folder `peers`. */
  readonly file: "graphileWorker" | "pgBoss" | "bareQueue";
  readonly pool: number;
  setting(work: Pick<Work, "groups" | "serial">): PeerArguments["setting"];
  /**
   * Query for the number of unfinished jobs, of completed jobs (null if the library does not keep these), and of those
   * that have failed and are not tried again.
   */
  readonly counts: string;
}

const limitMs = 2 * 3_600_000;

export function peerSubject(
  name: string,
  title: string,
  peer: Peer,
  { does = () => true, share = 1 }: { does?: (work: Work) => boolean; share?: number } = {},
): Subject {
  return {
    name,
    title,
    share,
    needs: "peers",
    does,
    run: async (surroundings, work, tasks) => {
      const { database, node } = surroundings;
      await makeSink(database);
      const child = startPeer(peer, { node, url: database.url, setting: peer.setting(work) });
      await hear(child, "ready");
      return await drain(queueOf(child, peer, database), surroundings, work, tasks);
    },
  };
}

export function startPeer(
  { file, pool }: Pick<Peer, "file" | "pool">,
  options: {
    readonly node: string;
    readonly url: string;
    readonly setting: PeerArguments["setting"];
  },
): ChildProcess {
  const { node, url, setting } = options;
  const given: PeerArguments = { url, setting, pool };
  const child = fork(`${folders.peers}${file}.js`, [JSON.stringify(given)], {
    execPath: node,
    execArgv: [],
    env: { PATH: process.env["PATH"], NO_LOG_SUCCESS: "1" },
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  endWithUs(child);
  return child;
}

export async function hear<Type extends FromPeer["type"]>(
  child: ChildProcess,
  type: Type,
): Promise<Extract<FromPeer, { type: Type }>> {
  return await message(
    child,
    (received): received is Extract<FromPeer, { type: Type }> => isFromPeer(received) && received.type === type,
  );
}

export function sendToPeer(child: ChildProcess, order: ToPeer): void {
  child.send(order);
}

function queueOf(child: ChildProcess, peer: Peer, { client }: Database): Queue {
  const counts = async (): Promise<{ left: number; completed: number | null; gaveUp: number }> =>
    await one(client, peer.counts);
  return {
    pid: child.pid ?? 0,
    add: async (work, first, last) => {
      const added = hear(child, "added");
      const group = groupExpression(work);
      const { input, key = null, tries = null, shape = null } = work;
      sendToPeer(child, { type: "add", first, last, input, group, key, tries, shape });
      await added;
      sendToPeer(child, { type: "wake" });
    },
    done: async (tasks) => {
      const reached = hear(child, "reached");
      sendToPeer(child, { type: "expect", tasks });
      await reached;
      const what = `${tasks} jobs are completed`;
      await until(async () => (await counts()).left === 0, { everyMs: 5, limitMs, what });
    },
    check: async (work, tasks) => {
      const heard = hear(child, "counts");
      sendToPeer(child, { type: "check" });
      const { handled, repeated, failed, early } = await heard;
      const { completed, gaveUp } = await counts();
      const got = { handled, repeated, failed, early, completed: completed ?? tasks - gaveUp, gaveUp };
      const toGiveUp = work.tries === 1 ? tasks : 0;
      const expected: typeof got = {
        handled: tasks,
        repeated: 0,
        failed: work.tries === undefined ? 0 : tasks,
        early: 0,
        completed: tasks - toGiveUp,
        gaveUp: toGiveUp,
      };
      if (isDeepStrictEqual(got, expected)) return;
      throw new Error(`expected of the jobs ${JSON.stringify(expected)}, got ${JSON.stringify(got)}`);
    },
    stop: async () => await end(child),
  };
}
