import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { shareOut } from "../../../src/supervisor/sessionGrants.js";

const sum = (numbers: readonly number[]): number => numbers.reduce((all, each) => all + each, 0);

const total = fc.nat({ max: 200 });
const demands = fc.array(fc.nat({ max: 100 }), { maxLength: 20 });

test("never exceeds a demand, and meets the smallest demands first", () => {
  assert.deepEqual(shareOut(10, [1, 20, 3]), [1, 6, 3]);
  assert.deepEqual(shareOut(10, [1, 2, 3]), [1, 2, 3]);
  assert.deepEqual(shareOut(1, [5, 5]), [1, 0]);
});

test("gives out as much as is demanded and available", () => {
  fc.assert(
    fc.property(total, demands, (sessions, wanted) => {
      const shares = shareOut(sessions, wanted);
      assert.equal(shares.length, wanted.length);
      for (const [index, share] of shares.entries()) {
        assert.ok(Number.isInteger(share) && share >= 0 && share <= (wanted[index] ?? 0));
      }
      assert.equal(sum(shares), Math.min(sessions, sum(wanted)));
    }),
  );
});

test("gives an unmet demand at most one session less than the largest share", () => {
  fc.assert(
    fc.property(total, demands, (sessions, wanted) => {
      const shares = shareOut(sessions, wanted);
      for (const [index, share] of shares.entries()) {
        if (share === wanted[index]) continue;
        assert.ok(share >= Math.max(...shares) - 1, shares.join(" "));
      }
    }),
  );
});

test("meets every demand that is no larger than an equal share", () => {
  fc.assert(
    fc.property(total, demands, (sessions, wanted) => {
      const shares = shareOut(sessions, wanted);
      for (const [index, demand] of wanted.entries()) {
        if (demand * wanted.length <= sessions) assert.equal(shares[index], demand);
      }
    }),
  );
});
