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

interface Share {
  demand: number;
  /** What the holder was told last, and the number of that grant. */
  granted: number;
  number: number;
  /** What it may still have: less only once it has answered its last grant. */
  held: number;
  retired: boolean;
}

/**
 * The sessions that several holders share: what they may hold together is never more than the total,
 * and after the total was lowered nobody gets more until it isn't.
 */
export class SessionShares<Holder> {
  readonly #tell: (holder: Holder, sessions: number, number: number) => void;
  readonly #shares = new Map<Holder, Share>();
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

  join(holder: Holder): void {
    this.#shares.set(holder, { demand: 0, granted: 0, number: 0, held: 0, retired: false });
  }

  demand(holder: Holder, sessions: number): void {
    this.#change(holder, (share) => {
      if (!share.retired) share.demand = sessions;
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
      share.demand = share.granted = share.held = 0;
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
    const shares = shareOut(
      this.#total,
      holders.map(([, { demand }]) => demand),
    );
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

  #sum(what: "demand" | "held"): number {
    let sum = 0;
    for (const share of this.#shares.values()) sum += share[what];
    return sum;
  }
}
