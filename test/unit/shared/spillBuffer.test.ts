import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { SpillBuffer, memoryShare, storedInMemory } from "../../../src/shared/spillBuffer.js";

test("what several stores get comes out of each as it was, and no more than the share is in memory", () => {
  const piece = fc.record({
    store: fc.nat({ max: 3 }),
    byte: fc.nat({ max: 255 }),
    length: fc.oneof(fc.nat({ max: 100 }), fc.nat({ max: memoryShare / 4 })),
    drop: fc.nat({ max: 15 }).map((chance) => chance === 0),
  });
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 20 }), (pieces) => {
      const stores = Array.from({ length: 4 }, () => new SpillBuffer());
      const expected: Buffer[][] = stores.map(() => []);
      for (const { store, byte, length, drop } of pieces) {
        const [into, list] = [stores[store]!, expected[store]!];
        if (drop) {
          into.drop();
          list.length = 0;
        }
        const bytes = Buffer.alloc(length, byte);
        into.add(bytes);
        list.push(bytes);
        assert.ok(storedInMemory().held <= memoryShare);
      }
      for (const [index, store] of stores.entries()) {
        const all = Buffer.concat(expected[index]!);
        assert.equal(store.length, all.length);
        assert.ok(store.take().equals(all));
        assert.equal(store.length, 0);
      }
      assert.equal(storedInMemory().held, 0);
    }),
    { numRuns: 30 },
  );
});
