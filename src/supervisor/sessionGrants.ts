/** Divides `total` sessions by max-min fairness: the smallest demands are met first, and the rest is divided equally. */
export function shareOut(total: number, demands: readonly number[]): number[] {
  const shares = demands.map(() => 0);
  let remaining = total;
  const order = demands.map((demand, index) => ({ demand, index }));
  order.sort((a, b) => a.demand - b.demand || a.index - b.index);
  for (const [rank, { demand, index }] of order.entries()) {
    const share = Math.min(demand, Math.ceil(remaining / (order.length - rank)));
    shares[index] = share;
    remaining -= share;
  }
  return shares;
}

/** How long a server is considered full after a holder of its sessions has reported it as full, in ms. */
const serverFullMs = 3_000;

interface Demand {
  readonly demand: number;
  /** The part of the demand that running and waiting tasks need. The rest is for sessions that are merely kept open. */
  readonly need: number;
}

const noDemand: Demand = { demand: 0, need: 0 };

/** Meets the holders' needs first, then divides the remaining sessions among the remaining demands. */
function shareByNeed(total: number, demands: readonly Demand[]): number[] {
  const needs = demands.map(({ need }) => need);
  const needed = shareOut(total, needs);
  const rest = shareOut(
    total - sumOf(needed),
    demands.map(({ demand }, index) => demand - (needed[index] ?? 0)),
  );
  return needed.map((share, index) => share + (rest[index] ?? 0));
}

const sumOf = (numbers: readonly number[]): number => numbers.reduce((sum, each) => sum + each, 0);

interface Share {
  /** Identifies the server on which the holder opens its sessions. */
  readonly server: string;
  demand: number;
  /** Number of open sessions, and number of sessions that run a task, both as last reported by the holder. */
  open: number;
  busy: number;
  /** The number of sessions granted last, and the sequence number of this grant. */
  granted: number;
  grantNumber: number;
  /** Most sessions that the holder may still have open. Lowered only when it acknowledges its last grant. */
  maxHeld: number;
  isRetired: boolean;
}

/**
 * Shares sessions among several holders, such as managers. Together they get no more than the total; after the total
 * has been lowered, no holder gets additional sessions until they have fewer. Sessions that are merely kept open are
 * granted last. The capacity of a full server is shared only among the holders on this server. The state of one holder:
 *
 *   settled ──grant sent──▶ unanswered ──last grant acknowledged──▶ settled
 *
 * While a grant is unanswered, the holder is assumed to have the larger number of sessions, old or new.
 */
export class SessionGrants<Holder> {
  readonly #sendGrant: (holder: Holder, sessions: number, number: number) => void;
  readonly #shares = new Map<Holder, Share>();
  /** The session capacity of each full server, and the timer after which the server is no longer considered full. */
  readonly #fullServers = new Map<string, { readonly sessions: number; readonly timer: NodeJS.Timeout }>();
  #total: number;

  constructor(total: number, sendGrant: (holder: Holder, sessions: number, number: number) => void) {
    this.#total = total;
    this.#sendGrant = sendGrant;
  }

  get total(): number {
    return this.#total;
  }

  set total(total: number) {
    this.#total = total;
    this.#redistribute();
  }

  get wanted(): number {
    return this.#sum("demand");
  }

  get maxHeld(): number {
    return this.#sum("maxHeld");
  }

  /** @param server a name that is the same for all holders on the same server */
  join(holder: Holder, server: string): void {
    this.#shares.set(holder, {
      server,
      demand: 0,
      open: 0,
      busy: 0,
      granted: 0,
      grantNumber: 0,
      maxHeld: 0,
      isRetired: false,
    });
  }

  setDemand(holder: Holder, sessions: number): void {
    this.#update(holder, (share) => {
      if (!share.isRetired) share.demand = sessions;
    });
  }

  setUsage(holder: Holder, { open, busy }: { readonly open: number; readonly busy: number }): void {
    this.#update(holder, (share) => {
      share.open = open;
      share.busy = busy;
    });
  }

  /**
   * The holder's server has capacity for only `capacity` more sessions. For a while, the holders on it share these and
   * the sessions that they have open there. Otherwise those that came first would keep them all.
   */
  reportFull(holder: Holder, capacity: number): void {
    this.#update(holder, ({ server }) => {
      let sessions = capacity;
      for (const share of this.#shares.values()) if (share.server === server) sessions += share.open;
      clearTimeout(this.#fullServers.get(server)?.timer);
      const timer = setTimeout(() => {
        this.#fullServers.delete(server);
        this.#redistribute();
      }, serverFullMs);
      timer.unref();
      this.#fullServers.set(server, { sessions, timer });
    });
  }

  /** An answer to an earlier grant than the last one is ignored. */
  acknowledge(holder: Holder, sessions: number, number: number): void {
    this.#update(holder, (share) => {
      if (number === share.grantNumber) share.maxHeld = Math.max(sessions, share.granted);
    });
  }

  /** The holder has died together with all its sessions, and will be restarted. */
  clear(holder: Holder): void {
    const { demand = 0, open = 0, maxHeld = 0 } = this.#shares.get(holder) ?? {};
    // Many tables begin asleep at the same time.
    if (demand + open + maxHeld === 0) return;
    this.#update(holder, (share) => {
      share.demand = share.open = share.busy = share.granted = share.maxHeld = 0;
    });
  }

  /** The holder is stopping. Its sessions are granted to others as they close. */
  retire(holder: Holder): void {
    this.#update(holder, (share) => {
      share.isRetired = true;
      share.demand = 0;
    });
  }

  leave(holder: Holder): void {
    if (this.#shares.delete(holder)) this.#redistribute();
  }

  #update(holder: Holder, change: (share: Share) => void): void {
    const share = this.#shares.get(holder);
    if (share === undefined) return;
    change(share);
    this.#redistribute();
  }

  #redistribute(): void {
    const holders = [...this.#shares];
    const shares = shareByNeed(this.#total, this.#usableDemands());
    let free = Math.max(0, this.#total - this.maxHeld);
    for (const [index, [holder, share]] of holders.entries()) {
      const sessions = Math.min(shares[index] ?? 0, share.maxHeld + free);
      free -= Math.max(0, sessions - share.maxHeld);
      share.maxHeld = Math.max(share.maxHeld, sessions);
      if (sessions === share.granted) continue;
      share.granted = sessions;
      share.grantNumber += 1;
      this.#sendGrant(holder, sessions, share.grantNumber);
    }
  }

  /** Limits the demands of holders that use the same full server to their shares of its capacity. */
  #usableDemands(): Demand[] {
    const shares = [...this.#shares.values()];
    const demands = shares.map(({ demand, open, busy }): Demand => {
      return { demand, need: Math.min(demand, busy + Math.max(0, demand - open)) };
    });
    for (const [server, { sessions }] of this.#fullServers) {
      const indexes = shares.flatMap((share, index) => (share.server === server && share.demand > 0 ? index : []));
      // A single holder shares the server with no other, and finds out itself how many sessions it can open.
      if (indexes.length < 2) continue;
      // Each holder gets at least one session, so that all of them keep trying.
      const limits = shareByNeed(
        Math.max(sessions, indexes.length),
        indexes.map((index) => demands[index] ?? noDemand),
      );
      for (const [rank, index] of indexes.entries()) {
        const limit = limits[rank] ?? 0;
        const { need } = demands[index] ?? noDemand;
        demands[index] = { demand: limit, need: Math.min(need, limit) };
      }
    }
    return demands;
  }

  #sum(what: "demand" | "maxHeld"): number {
    let sum = 0;
    for (const share of this.#shares.values()) sum += share[what];
    return sum;
  }
}
