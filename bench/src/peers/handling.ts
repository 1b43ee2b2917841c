import { Pool } from "pg";
import type { Addition, FromPeer, Payload, PeerArguments, ToPeer } from "./protocol.js";

export interface Handling {
  readonly given: PeerArguments;
  readonly pool: Pool;
  /** What every job of the peer does: it executes its statement and is counted. Resolves to the rows of the result. */
  readonly handle: (payload: Payload) => Promise<unknown>;
}

/** Sets up what the processes of all peers have in common. */
export function handling({ wake, add }: { wake: () => void; add: (addition: Addition) => Promise<void> }): Handling {
  const given: PeerArguments = JSON.parse(process.argv[2] ?? "");
  const pool = new Pool({ connectionString: given.url, max: given.pool });
  const counts = new Map<number, number>();
  let handled = 0;
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
      case "wake":
        wake();
        break;
      case "check":
        tell({
          type: "counts",
          handled,
          repeated: [...counts.values()].filter((times) => times > 1).length,
        });
        break;
      default:
        throw new Error(`unknown message ${JSON.stringify(message satisfies never)}`);
    }
  });
  const reach = (): void => {
    if (handled === expected) tell({ type: "reached", tasks: handled });
  };
  return {
    given,
    pool,
    handle: async ({ n, sql, mark }) => {
      if (mark === true) {
        tell({ type: "started", n, at: performance.timeOrigin + performance.now() });
        return null;
      }
      const result = await pool.query(sql);
      counts.set(n, (counts.get(n) ?? 0) + 1);
      handled += 1;
      reach();
      return result.rows;
    },
  };
}

export function tell(message: FromPeer): void {
  process.send?.(message);
}
