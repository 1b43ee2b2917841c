import { Pool, type QueryResult } from "pg";
import { now } from "../clock.js";
import { makeRequests } from "../requests.js";
import { triesBefore } from "../work.js";
import type { Addition, FromPeer, Payload, PeerArguments, ToPeer } from "./protocol.js";

export interface Handling {
  readonly given: PeerArguments;
  readonly pool: Pool;
  /**
   * What every job of the peer does: it executes its statement and is counted. Resolves to the rows of the result.
   *
   * @param options.attempt number of this try, from 1
   * @param options.also further SQL for the same transaction
   */
  readonly handle: (payload: Payload, options?: { attempt?: number; also?: string }) => Promise<unknown>;
}

/** Sets up what the processes of all peers have in common. */
export function handling({
  wake,
  add,
  request,
}: {
  wake: () => void;
  add: (addition: Addition) => Promise<void>;
  /** Requests the job of a key. */
  request?: (key: number) => Promise<void>;
}): Handling {
  const given: PeerArguments = JSON.parse(process.argv[2] ?? "");
  const pool = new Pool({ connectionString: given.url, max: given.pool });
  const counts = new Map<number, number>();
  const startedAfter: number[] = [];
  let handled = 0;
  let failed = 0;
  let early = 0;
  let expected = 0;
  process.on("message", (message: ToPeer) => {
    switch (message.type) {
      case "expect":
        expected = message.tasks;
        reach();
        break;
      case "add":
        void add(message).then(() => tell({ type: "added" }));
        break;
      case "request":
        if (request === undefined) throw new Error("expected a peer that can make requests");
        void makeRequests(message, request).then((result) => tell({ type: "requested", ...result }));
        break;
      case "wake":
        wake();
        break;
      case "check":
        tell({
          type: "counts",
          handled,
          repeated: [...counts.values()].filter((times) => times > 1).length,
          failed,
          early,
        });
        break;
      case "starts":
        tell({ type: "started-after", ms: startedAfter.splice(0) });
        break;
      default:
        throw new Error(`unknown message ${JSON.stringify(message satisfies never)}`);
    }
  });
  const reach = (): void => {
    if (handled === expected) tell({ type: "reached", tasks: handled });
  };
  const count = (n: number): void => {
    counts.set(n, (counts.get(n) ?? 0) + 1);
    handled += 1;
    reach();
  };
  /** `pool.query` would close the connection if the statement fails. */
  const query = async (sql: string): Promise<QueryResult> => {
    const client = await pool.connect();
    try {
      return await client.query(sql);
    } finally {
      client.release();
    }
  };
  return {
    given,
    pool,
    handle: async ({ n, sql, mark, tries, after, at }, { attempt = 1, also = "" } = {}) => {
      if (at !== undefined) startedAfter.push(now() - at);
      if (mark === true) {
        tell({ type: "started", n, at: now() });
        return null;
      }
      const [first, last] = after ?? [0, -1];
      for (let i = first; i <= last; i += 1) {
        if (!counts.has(i)) early += 1;
      }
      try {
        const result = await query(sql.replace(triesBefore, String(attempt - 1)) + also);
        count(n);
        return result.rows;
      } catch (error) {
        failed += 1;
        if (attempt === tries) count(n);
        throw error;
      }
    },
  };
}

export function tell(message: FromPeer): void {
  process.send?.(message);
}
