/**
 * Shares `total` sessions out: nobody gets more than it asks for, and what one does not ask for is
 * the others'. Where there is too little, those that ask for the least are served first, the rest
 * alike.
 */
export function shareOut(total: number, demands: readonly number[]): number[] {
  const shares = demands.map(() => 0);
  let left = total;
  const order = demands.map((demand, index) => ({ demand, index }));
  order.sort((a, b) => a.demand - b.demand || a.index - b.index);
  for (const [place, { demand, index }] of order.entries()) {
    const share = Math.min(demand, Math.ceil(left / (order.length - place)));
    shares[index] = share;
    left -= share;
  }
  return shares;
}

/** How long a server counts as full after one of its holders was told that it is, in ms. */
const fullForMs = 3_000;

interface Demand {
  readonly demand: number;
  /** How much of it is for what runs or waits: the rest is kept open for later. */
  readonly need: number;
}

const none: Demand = { demand: 0, need: 0 };

/** Shares sessions out to what is needed first, and what is left to the rest. */
function shareByNeed(total: number, demands: readonly Demand[]): number[] {
  const needed = shareOut(
    total,
    demands.map(({ need }) => need),
  );
  const rest = shareOut(
    total - sumOf(needed),
    demands.map(({ demand }, index) => demand - (needed[index] ?? 0)),
  );
  return needed.map((share, index) => share + (rest[index] ?? 0));
}

const sumOf = (numbers: readonly number[]): number => numbers.reduce((sum, each) => sum + each, 0);

interface Share {
  /** Those with the same one are on the same server. */
  readonly server: string;
  demand: number;
  /** How many sessions it has open, and how many of them run something, as it told last. */
  open: number;
  busy: number;
  /** What the holder was told last, and the number of that grant. */
  granted: number;
  number: number;
  /** What it may still have: less only once it has answered its last grant. */
  held: number;
  retired: boolean;
}

/**
 * The sessions that several holders share: what they may hold together is never more than the total,
 * and after the total was lowered nobody gets more until it isn't. Sessions that are kept open without
 * anything to do are shared out last, and those of a full server among its holders alone.
 */
export class SessionGrants<Holder> {
  readonly #tell: (holder: Holder, sessions: number, number: number) => void;
  readonly #shares = new Map<Holder, Share>();
  /** How many sessions full servers have room for, and the timers after which that is forgotten. */
  readonly #full = new Map<string, { readonly sessions: number; readonly timer: NodeJS.Timeout }>();
  #total: number;

  /** @param tell hands a grant with its number to its holder */
  constructor(total: number, tell: (holder: Holder, sessions: number, number: number) => void) {
    this.#total = total;
    this.#tell = tell;
  }

  get total(): number {
    return this.#total;
  }

  set total(total: number) {
    this.#total = total;
    this.#share();
  }

  /** How many sessions all holders could use together. */
  get wanted(): number {
    return this.#sum("demand");
  }

  /** How many they may have now. */
  get held(): number {
    return this.#sum("held");
  }

  /** @param server the same for all that are on the same server */
  join(holder: Holder, server: string): void {
    this.#shares.set(holder, {
      server,
      demand: 0,
      open: 0,
      busy: 0,
      granted: 0,
      number: 0,
      held: 0,
      retired: false,
    });
  }

  demand(holder: Holder, sessions: number): void {
    this.#change(holder, (share) => {
      if (!share.retired) share.demand = sessions;
    });
  }

  /** How many sessions the holder has open, and how many of them run something. */
  count(holder: Holder, { open, busy }: { readonly open: number; readonly busy: number }): void {
    this.#change(holder, (share) => {
      share.open = open;
      share.busy = busy;
    });
  }

  /**
   * The holder could not open what it was granted: its server has room for so many more only. For a while
   * its holders share what they have open there, lest those that came first keep all of it.
   */
  full(holder: Holder, room: number): void {
    this.#change(holder, ({ server }) => {
      let sessions = room;
      for (const share of this.#shares.values())
        if (share.server === server) sessions += share.open;
      clearTimeout(this.#full.get(server)?.timer);
      const timer = setTimeout(() => {
        this.#full.delete(server);
        this.#share();
      }, fullForMs);
      timer.unref();
      this.#full.set(server, { sessions, timer });
    });
  }

  /** The holder's answer to a grant; to one that is not the last it says nothing of what came since. */
  answer(holder: Holder, sessions: number, number: number): void {
    this.#change(holder, (share) => {
      if (number === share.number) share.held = Math.max(sessions, share.granted);
    });
  }

  /** The holder died, and all its sessions with it; another one takes its place. */
  clear(holder: Holder): void {
    this.#change(holder, (share) => {
      share.demand = share.open = share.busy = share.granted = share.held = 0;
    });
  }

  /** The holder gets nothing more, and gives back what it has as that becomes free. */
  retire(holder: Holder): void {
    this.#change(holder, (share) => {
      share.retired = true;
      share.demand = 0;
    });
  }

  leave(holder: Holder): void {
    if (this.#shares.delete(holder)) this.#share();
  }

  #change(holder: Holder, change: (share: Share) => void): void {
    const share = this.#shares.get(holder);
    if (share === undefined) return;
    change(share);
    this.#share();
  }

  #share(): void {
    const holders = [...this.#shares];
    const shares = shareByNeed(this.#total, this.#possible());
    let free = Math.max(0, this.#total - this.held);
    for (const [index, [holder, share]] of holders.entries()) {
      const sessions = Math.min(shares[index] ?? 0, share.held + free);
      free -= Math.max(0, sessions - share.held);
      share.held = Math.max(share.held, sessions);
      if (sessions === share.granted) continue;
      share.granted = sessions;
      share.number += 1;
      this.#tell(holder, sessions, share.number);
    }
  }

  /** What each could use if the total did not matter. */
  #possible(): Demand[] {
    const shares = [...this.#shares.values()];
    const possible = shares.map(demandOf);
    for (const [server, { sessions }] of this.#full) {
      const those = shares.flatMap((share, index) =>
        share.server === server && share.demand > 0 ? index : [],
      );
      // Who is alone has nobody to share with, and finds out by itself when there is room.
      if (those.length < 2) continue;
      // At least one each, so that all of them go on trying.
      const room = Math.max(sessions, those.length);
      const parts = shareByNeed(
        room,
        those.map((index) => possible[index] ?? none),
      );
      for (const [place, index] of those.entries()) {
        const most = parts[place] ?? 0;
        const { need } = possible[index] ?? none;
        possible[index] = { demand: most, need: Math.min(need, most) };
      }
    }
    return possible;
  }

  #sum(what: "demand" | "held"): number {
    let sum = 0;
    for (const share of this.#shares.values()) sum += share[what];
    return sum;
  }
}

function demandOf({ demand, open, busy }: Share): Demand {
  return { demand, need: Math.min(demand, busy + Math.max(0, demand - open)) };
}
