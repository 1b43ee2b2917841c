import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { shareOut } from "../../../src/supervisor/sessionGrants.js";

const sum = (numbers: readonly number[]): number => numbers.reduce((all, each) => all + each, 0);

const total = fc.nat({ max: 200 });
const demands = fc.array(fc.nat({ max: 100 }), { maxLength: 20 });

test("nobody gets more than it asks for, and all that is wanted is given while there is some", () => {
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

test("who gets less than it asks for gets no less than anybody else, but for one", () => {
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

test("whoever asks for no more than an equal part gets all of it", () => {
  fc.assert(
    fc.property(total, demands, (sessions, wanted) => {
      const shares = shareOut(sessions, wanted);
      for (const [index, demand] of wanted.entries()) {
        if (demand * wanted.length <= sessions) assert.equal(shares[index], demand);
      }
    }),
  );
});
