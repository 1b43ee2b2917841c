import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { MessageFramer } from "../../../../../src/shared/postgres/protocol/messageFramer.js";

interface Message {
  readonly code: number;
  readonly body: string;
}

function encode({ code, body }: Message): Buffer {
  const bytes = Buffer.from(body, "latin1");
  const header = Buffer.alloc(5);
  header.writeUInt8(code, 0);
  header.writeUInt32BE(bytes.length + 4, 1);
  return Buffer.concat([header, bytes]);
}

test("messages are reassembled however the stream is split, those above the limit truncated", () => {
  const message = fc.record({
    code: fc.integer({ min: 0, max: 255 }),
    body: fc.string({ maxLength: 40 }),
  });
  const ascii = message.filter(({ body }) => /^[\0-\x7f]*$/.test(body));
  fc.assert(
    fc.property(fc.array(ascii), fc.array(fc.nat(30)), fc.nat(40), (messages, cuts, limit) => {
      const stream = Buffer.concat(messages.map(encode));
      const got: { code: number; body: string; whole: boolean }[] = [];
      const frames = new MessageFramer(
        () => limit,
        (code, body, whole) => got.push({ code, body: body.toString("latin1"), whole }),
      );
      let offset = 0;
      for (const cut of cuts) frames.push(stream.subarray(offset, (offset += cut)));
      frames.push(stream.subarray(offset));
      const expected = messages.map(({ code, body }) => ({
        code,
        body: body.slice(0, limit),
        whole: body.length <= limit,
      }));
      assert.deepEqual(got, expected);
    }),
  );
});

test("a stream that is not the protocol is rejected", () => {
  const frames = new MessageFramer(
    () => 10,
    () => assert.fail("no message was expected"),
  );
  assert.throws(() => frames.push(Buffer.from([0x41, 0, 0, 0, 3])), /length below 4/);
});
