import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { array, assert as check, constantFrom, integer, nat, property, record } from "fast-check";
import { SessionGrants, shareOut } from "../../../src/supervisor/sessionGrants.js";

/** A model of a manager. Grants and answers are in transit for a while. */
class Holder {
  /** The grants that are in transit to the manager, and its answers that are in transit. */
  readonly grants: { sessions: number; number: number }[] = [];
  readonly answers: { sessions: number; number: number }[] = [];
  held = 0;
  #granted = 0;
  #number = 0;
  #answered = true;

  receive(): void {
    const grant = this.grants.shift();
    if (grant === undefined) return;
    this.#granted = grant.sessions;
    this.#number = grant.number;
    this.#answered = false;
    this.#answer();
  }

  open(): void {
    this.held = Math.max(this.held, this.#granted);
  }

  /** Closes one session, as a manager does when a session becomes free, and answers. */
  close(): void {
    if (this.held > this.#granted) this.held -= 1;
    this.#answer();
  }

  die(): void {
    this.held = this.#granted = 0;
    this.#answered = true;
    this.grants.length = this.answers.length = 0;
  }

  #answer(): void {
    if (this.#answered || this.held > this.#granted) return;
    this.#answered = true;
    this.answers.push({ sessions: this.held, number: this.#number });
  }
}

const holderCount = 4;
const step = record({
  holder: nat(holderCount - 1),
  what: constantFrom(
    "demand",
    "receive",
    "receive",
    "open",
    "open",
    "close",
    "acknowledge",
    "acknowledge",
    "die",
    "leave",
    "total",
    "count",
    "full",
  ),
  sessions: nat(12),
});

function createModel(total: number): { holders: Holder[]; shares: SessionGrants<Holder> } {
  const shares = new SessionGrants<Holder>(total, (holder, sessions, number) => {
    holder.grants.push({ sessions, number });
  });
  const holders = Array.from({ length: holderCount }, () => new Holder());
  for (const holder of holders) shares.join(holder, "server");
  return { holders, shares };
}

function deliverAnswer(shares: SessionGrants<Holder>, holder: Holder): void {
  const answer = holder.answers.shift();
  if (answer !== undefined) shares.acknowledge(holder, answer.sessions, answer.number);
}

function applyStep(
  { holders, shares }: ReturnType<typeof createModel>,
  { holder: index, what, sessions }: { holder: number; what: string; sessions: number },
): void {
  const holder = holders[index];
  if (holder === undefined) return;
  if (what === "demand") shares.setDemand(holder, sessions);
  else if (what === "receive") holder.receive();
  else if (what === "open") holder.open();
  else if (what === "close") holder.close();
  else if (what === "acknowledge") deliverAnswer(shares, holder);
  else if (what === "total") shares.total = sessions + 1;
  else if (what === "count") shares.setUsage(holder, { open: holder.held, busy: holder.held >> 1 });
  else if (what === "full") shares.reportFull(holder, sessions);
  else if (what === "die") {
    holder.die();
    shares.clear(holder);
  } else {
    holder.die();
    shares.leave(holder);
    const next = new Holder();
    holders[index] = next;
    shares.join(next, "server");
  }
}

const sumOf = (numbers: readonly number[]): number => numbers.reduce((sum, each) => sum + each, 0);

const sumHeld = (holders: readonly Holder[]): number => holders.reduce((sum, { held }) => sum + held, 0);

describe("SessionGrants", () => {
  it("never exceeds the total, whatever is in transit and whichever holder dies", () => {
    check(
      property(integer({ min: 1, max: 12 }), array(step, { maxLength: 80 }), (total, steps) => {
        const all = createModel(total);
        for (const each of steps) {
          const before = all.shares.maxHeld;
          applyStep(all, each);
          const now = sumHeld(all.holders);
          const { maxHeld, total: allowed } = all.shares;
          assert.ok(now <= maxHeld, `${now} held, ${maxHeld} assumed`);
          // After the total has been lowered, there may be too many sessions for a while, because a larger grant may
          // still be in transit. But there are never more than were granted before.
          assert.ok(maxHeld <= Math.max(before, allowed), `${maxHeld} of ${allowed}`);
        }
      }),
      { numRuns: 3000 },
    );
  });

  it("grants everything demanded once every answer has arrived", (t) => {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    check(
      property(integer({ min: 1, max: 12 }), array(step, { maxLength: 60 }), (total, steps) => {
        const all = createModel(total);
        for (const each of steps) applyStep(all, each);
        // From now on, no server counts as full, and no session is merely kept open.
        t.mock.timers.tick(3_000);
        for (const holder of all.holders) all.shares.setUsage(holder, { open: 0, busy: 0 });
        const demands = all.holders.map((_, index) => (index + steps.length) % 7);
        for (const [index, holder] of all.holders.entries()) {
          all.shares.setDemand(holder, demands[index] ?? 0);
        }
        const isSettled = (): boolean =>
          all.holders.every(({ grants, answers }) => grants.length + answers.length === 0);
        for (let round = 0; round < 100 || !isSettled(); round += 1) {
          assert.ok(round < 1000, "grants and answers never settle");
          for (const holder of all.holders) {
            holder.receive();
            holder.open();
            holder.close();
            deliverAnswer(all.shares, holder);
          }
        }
        assert.deepEqual(
          all.holders.map(({ held }) => held),
          shareOut(all.shares.total, demands),
        );
      }),
      { numRuns: 1000 },
    );
  });

  it("serves running and waiting tasks before sessions that are merely kept open", () => {
    const { holders, shares } = createModel(10);
    const [idle, other] = holders;
    assert.ok(idle !== undefined && other !== undefined);
    shares.setDemand(idle, 8);
    idle.receive();
    idle.open();
    deliverAnswer(shares, idle);
    shares.setUsage(idle, { open: 8, busy: 1 });
    shares.setDemand(other, 6);
    assert.deepEqual(idle.grants.at(-1)?.sessions, 4);
    for (let each = 0; each < 4; each += 1) {
      idle.receive();
      idle.close();
    }
    deliverAnswer(shares, idle);
    assert.deepEqual(other.grants.at(-1)?.sessions, 6);
    // The idle holder gets back the sessions that the other one no longer needs.
    shares.setDemand(other, 2);
    while (other.grants.length > 0) other.receive();
    while (other.answers.length > 0) deliverAnswer(shares, other);
    assert.deepEqual(idle.grants.at(-1)?.sessions, 8);
  });

  it("shares the capacity of a full server among its holders for a while", (t) => {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const told = new Map<string, number>();
    const shares = new SessionGrants<string>(64, (holder, sessions) => told.set(holder, sessions));
    for (const holder of ["first", "late"]) shares.join(holder, "full server");
    shares.join("elsewhere", "other server");
    shares.setDemand("first", 40);
    shares.setDemand("elsewhere", 4);
    shares.setUsage("first", { open: 20, busy: 20 });
    // "first" is the only holder with a demand on its server, so no other one could give up sessions.
    shares.reportFull("first", 0);
    assert.deepEqual(told.get("first"), 40);
    shares.setDemand("late", 5);
    shares.reportFull("late", 1);
    assert.deepEqual(Object.fromEntries(told), { first: 16, late: 5, elsewhere: 4 });
    t.mock.timers.tick(2_999);
    assert.deepEqual(told.get("first"), 16);
    t.mock.timers.tick(1);
    assert.deepEqual(told.get("first"), 40);
  });

  it("leaves each holder of a full server at least one session", () => {
    const told = new Map<string, number>();
    const shares = new SessionGrants<string>(64, (holder, sessions) => told.set(holder, sessions));
    for (const holder of ["first", "late"]) {
      shares.join(holder, "full server");
      shares.setDemand(holder, 5);
    }
    shares.reportFull("late", 0);
    assert.deepEqual(Object.fromEntries(told), { first: 1, late: 1 });
  });

  it("grants the sessions of a retired holder to others as it closes them", () => {
    const { holders, shares } = createModel(4);
    const [leaving, other] = holders;
    assert.ok(leaving !== undefined && other !== undefined);
    shares.setDemand(leaving, 4);
    leaving.receive();
    leaving.open();
    deliverAnswer(shares, leaving);
    shares.setDemand(other, 4);
    shares.retire(leaving);
    shares.setDemand(leaving, 4);
    while (leaving.held > 0) {
      leaving.receive();
      leaving.close();
    }
    while (leaving.answers.length > 0) deliverAnswer(shares, leaving);
    assert.deepEqual(other.grants.at(-1)?.sessions, 4);
  });
});

describe("shareOut", () => {
  const total = nat({ max: 200 });
  const demands = array(nat({ max: 100 }), { maxLength: 20 });

  it("never exceeds a demand, and meets the smallest demands first", () => {
    assert.deepEqual(shareOut(10, [1, 20, 3]), [1, 6, 3]);
    assert.deepEqual(shareOut(10, [1, 2, 3]), [1, 2, 3]);
    assert.deepEqual(shareOut(1, [5, 5]), [1, 0]);
  });

  it("gives out as much as is demanded and available", () => {
    check(
      property(total, demands, (sessions, wanted) => {
        const shares = shareOut(sessions, wanted);
        assert.equal(shares.length, wanted.length);
        for (const [index, share] of shares.entries()) {
          assert.ok(Number.isInteger(share) && share >= 0 && share <= (wanted[index] ?? 0));
        }
        assert.equal(sumOf(shares), Math.min(sessions, sumOf(wanted)));
      }),
    );
  });

  it("gives an unmet demand at most one session less than the largest share", () => {
    check(
      property(total, demands, (sessions, wanted) => {
        const shares = shareOut(sessions, wanted);
        for (const [index, share] of shares.entries()) {
          if (share === wanted[index]) continue;
          assert.ok(share >= Math.max(...shares) - 1, shares.join(" "));
        }
      }),
    );
  });

  it("meets every demand that is no larger than an equal share", () => {
    check(
      property(total, demands, (sessions, wanted) => {
        const shares = shareOut(sessions, wanted);
        for (const [index, demand] of wanted.entries()) {
          if (demand * wanted.length <= sessions) assert.equal(shares[index], demand);
        }
      }),
    );
  });
});
