import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { array, assert as check, constantFrom, integer, nat, property, record } from "fast-check";
import { SessionGrants, shareOut } from "../../../src/supervisor/sessionGrants.js";

/** A manager as the supervisor meets it: messages are on the way for a while in both directions. */
class Holder {
  /** Grants on the way to it, and answers on the way back. */
  readonly inbox: { sessions: number; number: number }[] = [];
  readonly outbox: { sessions: number; number: number }[] = [];
  held = 0;
  #granted = 0;
  #number = 0;
  #answered = true;

  receive(): void {
    const grant = this.inbox.shift();
    if (grant === undefined) return;
    this.#granted = grant.sessions;
    this.#number = grant.number;
    this.#answered = false;
    this.#answer();
  }

  open(): void {
    this.held = Math.max(this.held, this.#granted);
  }

  /** Sessions end one by one as they become free. */
  letGo(): void {
    if (this.held > this.#granted) this.held -= 1;
    this.#answer();
  }

  die(): void {
    this.held = this.#granted = 0;
    this.#answered = true;
    this.inbox.length = this.outbox.length = 0;
  }

  #answer(): void {
    if (this.#answered || this.held > this.#granted) return;
    this.#answered = true;
    this.outbox.push({ sessions: this.held, number: this.#number });
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
    "let go",
    "hear",
    "hear",
    "die",
    "leave",
    "total",
    "count",
    "full",
  ),
  sessions: nat(12),
});

function world(total: number): { holders: Holder[]; shares: SessionGrants<Holder> } {
  const shares = new SessionGrants<Holder>(total, (holder, sessions, number) => {
    holder.inbox.push({ sessions, number });
  });
  const holders = Array.from({ length: holderCount }, () => new Holder());
  for (const holder of holders) shares.join(holder, "server");
  return { holders, shares };
}

function hear(shares: SessionGrants<Holder>, holder: Holder): void {
  const answer = holder.outbox.shift();
  if (answer !== undefined) shares.answer(holder, answer.sessions, answer.number);
}

function take(
  { holders, shares }: ReturnType<typeof world>,
  { holder: index, what, sessions }: { holder: number; what: string; sessions: number },
): void {
  const holder = holders[index];
  if (holder === undefined) return;
  if (what === "demand") shares.demand(holder, sessions);
  else if (what === "receive") holder.receive();
  else if (what === "open") holder.open();
  else if (what === "let go") holder.letGo();
  else if (what === "hear") hear(shares, holder);
  else if (what === "total") shares.total = sessions + 1;
  else if (what === "count") shares.count(holder, { open: holder.held, busy: holder.held >> 1 });
  else if (what === "full") shares.full(holder, sessions);
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

const together = (holders: readonly Holder[]): number =>
  holders.reduce((sum, { held }) => sum + held, 0);

describe("sessions that managers share", () => {
  it("are never more than there are, whatever is on the way and whoever dies", () => {
    check(
      property(integer({ min: 1, max: 12 }), array(step, { maxLength: 80 }), (total, steps) => {
        const all = world(total);
        for (const each of steps) {
          const before = all.shares.held;
          take(all, each);
          const now = together(all.holders);
          const { held, total: allowed } = all.shares;
          assert.ok(now <= held, `${now} held, ${held} known of`);
          // After the total was lowered there may be too many for a while, for a larger grant may
          // still be on its way, but never more than were given before.
          assert.ok(held <= Math.max(before, allowed), `${held} of ${allowed}`);
        }
      }),
      { numRuns: 3000 },
    );
  });

  it("are all given to who asks for them, once every answer has come", (t) => {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    check(
      property(integer({ min: 1, max: 12 }), array(step, { maxLength: 60 }), (total, steps) => {
        const all = world(total);
        for (const each of steps) take(all, each);
        // No server is full any more, and nothing is kept open for later.
        t.mock.timers.tick(3_000);
        for (const holder of all.holders) all.shares.count(holder, { open: 0, busy: 0 });
        const demands = all.holders.map((_, index) => (index + steps.length) % 7);
        for (const [index, holder] of all.holders.entries()) {
          all.shares.demand(holder, demands[index] ?? 0);
        }
        const quiet = (): boolean =>
          all.holders.every(({ inbox, outbox }) => inbox.length + outbox.length === 0);
        for (let round = 0; round < 100 || !quiet(); round += 1) {
          assert.ok(round < 1000, "grants and answers go on for ever");
          for (const holder of all.holders) {
            holder.receive();
            holder.open();
            holder.letGo();
            hear(all.shares, holder);
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

  it("go to nobody beyond what is asked for, and to the smallest demands first", () => {
    assert.deepEqual(shareOut(10, [1, 20, 3]), [1, 6, 3]);
    assert.deepEqual(shareOut(10, [1, 2, 3]), [1, 2, 3]);
    assert.deepEqual(shareOut(1, [5, 5]), [1, 0]);
  });

  it("go to what runs or waits before what is kept open for later", () => {
    const { holders, shares } = world(10);
    const [idle, other] = holders;
    assert.ok(idle !== undefined && other !== undefined);
    shares.demand(idle, 8);
    idle.receive();
    idle.open();
    hear(shares, idle);
    shares.count(idle, { open: 8, busy: 1 });
    shares.demand(other, 6);
    assert.deepEqual(idle.inbox.at(-1)?.sessions, 4);
    for (let each = 0; each < 4; each += 1) {
      idle.receive();
      idle.letGo();
    }
    hear(shares, idle);
    assert.deepEqual(other.inbox.at(-1)?.sessions, 6);
    // What the other needs no more it may have back.
    shares.demand(other, 2);
    while (other.inbox.length > 0) other.receive();
    while (other.outbox.length > 0) hear(shares, other);
    assert.deepEqual(idle.inbox.at(-1)?.sessions, 8);
  });

  it("of a full server are shared among its holders, until it is no longer known to be full", (t) => {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const told = new Map<string, number>();
    const shares = new SessionGrants<string>(64, (holder, sessions) => told.set(holder, sessions));
    for (const holder of ["first", "late"]) shares.join(holder, "full server");
    shares.join("elsewhere", "other server");
    shares.demand("first", 40);
    shares.demand("elsewhere", 4);
    shares.count("first", { open: 20, busy: 20 });
    // Alone on its server, nobody is to give it anything.
    shares.full("first", 0);
    assert.deepEqual(told.get("first"), 40);
    shares.demand("late", 5);
    shares.full("late", 1);
    assert.deepEqual(Object.fromEntries(told), { first: 16, late: 5, elsewhere: 4 });
    t.mock.timers.tick(2_999);
    assert.deepEqual(told.get("first"), 16);
    t.mock.timers.tick(1);
    assert.deepEqual(told.get("first"), 40);
  });

  it("of a full server are one at least for each holder, so that all of them go on trying", () => {
    const told = new Map<string, number>();
    const shares = new SessionGrants<string>(64, (holder, sessions) => told.set(holder, sessions));
    for (const holder of ["first", "late"]) {
      shares.join(holder, "full server");
      shares.demand(holder, 5);
    }
    shares.full("late", 0);
    assert.deepEqual(Object.fromEntries(told), { first: 1, late: 1 });
  });

  it("of a holder that has to leave are the others' as it gives them back", () => {
    const { holders, shares } = world(4);
    const [leaving, other] = holders;
    assert.ok(leaving !== undefined && other !== undefined);
    shares.demand(leaving, 4);
    leaving.receive();
    leaving.open();
    hear(shares, leaving);
    shares.demand(other, 4);
    shares.retire(leaving);
    shares.demand(leaving, 4);
    while (leaving.held > 0) {
      leaving.receive();
      leaving.letGo();
    }
    while (leaving.outbox.length > 0) hear(shares, leaving);
    assert.deepEqual(other.inbox.at(-1)?.sessions, 4);
  });
});
