import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { SpillBuffer, maxMemoryBytes, spillBufferMemory } from "../../../src/shared/spillBuffer.js";

test("several buffers return what was appended to them, and together stay within the memory limit", () => {
  const piece = fc.record({
    buffer: fc.nat({ max: 3 }),
    byte: fc.nat({ max: 255 }),
    length: fc.oneof(fc.nat({ max: 100 }), fc.nat({ max: maxMemoryBytes / 4 })),
    drop: fc.nat({ max: 15 }).map((chance) => chance === 0),
  });
  const usedBefore = spillBufferMemory().used;
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 20 }), (pieces) => {
      const buffers = Array.from({ length: 4 }, () => new SpillBuffer());
      const expected: Buffer[][] = buffers.map(() => []);
      for (const { buffer, byte, length, drop } of pieces) {
        const [into, list] = [buffers[buffer]!, expected[buffer]!];
        if (drop) {
          into.discard();
          list.length = 0;
        }
        const bytes = Buffer.alloc(length, byte);
        into.append(bytes);
        list.push(bytes);
        assert.ok(spillBufferMemory().used <= maxMemoryBytes);
      }
      for (const [index, buffer] of buffers.entries()) {
        const all = Buffer.concat(expected[index]!);
        assert.equal(buffer.length, all.length);
        assert.ok(buffer.take().equals(all));
        assert.equal(buffer.length, 0);
      }
      assert.equal(spillBufferMemory().used, usedBefore);
    }),
    { numRuns: 30 },
  );
});
