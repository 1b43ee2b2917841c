import type { ClaimRequest, KeptSession } from "../../src/manager/claim/claimFull.sql.js";

/** Sessions that have nothing to do, named `owner 0` and so on. */
export function fronts(count: number): ClaimRequest["places"] {
  return Array.from({ length: count }, (_, index) => ({
    owner: `owner ${index}`,
    pid: 1000 + index,
    front: true,
  }));
}

/** A claim that looks at groups from their beginning, for sessions that have nothing to do. */
export function claimOf(
  running: ReadonlyMap<number, number>,
  options: {
    readonly sessions: number;
    readonly lookAhead?: number;
    readonly except?: readonly string[];
    readonly kept?: readonly KeptSession[];
  },
): ClaimRequest {
  const { sessions, lookAhead = 0, except = [], kept = [] } = options;
  const look = sessions + lookAhead;
  return {
    groups: [...running].map(([hash, count]) => ({
      hash,
      running: count,
      max: 2_147_483_647,
      id: -(2n ** 63n),
      most: look,
      places: null,
    })),
    places: fronts(sessions),
    kept,
    look,
    except,
  };
}
