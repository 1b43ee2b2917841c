import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { Groups } from "../../src/manager/groups.js";

test("what runs of each group is what began and has not ended", () => {
  const hash = fc.integer({ min: -3, max: 3 });
  fc.assert(
    fc.property(fc.array(fc.record({ hash, ends: fc.boolean() }), { maxLength: 60 }), (steps) => {
      const groups = new Groups();
      const running: number[] = [];
      for (const step of steps) {
        const place = running.indexOf(step.hash);
        if (!step.ends) {
          running.push(step.hash);
          groups.begin(step.hash);
        } else if (place >= 0) {
          running.splice(place, 1);
          groups.end(step.hash);
        }
        assert.equal(groups.total, running.length);
        const counts = [...new Set(running)].map(
          (each) => [each, running.filter((one) => one === each).length] as const,
        );
        assert.deepEqual(new Map(groups.running), new Map(counts));
      }
    }),
  );
});
