import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonText, printableJson } from "../../../src/shared/printable.js";

const hostile = 'a\u202e\u009b\x1b[2J\\u001b\n\t"b"';

test("JSON has only escaped characters that change how text is shown, and the same value", () => {
  for (const indent of [0, 2]) {
    const text = jsonText({ [hostile]: [hostile] }, indent);
    assert.doesNotMatch(text, /[\u202e\u009b]/);
    assert.deepEqual(JSON.parse(text), { [hostile]: [hostile] });
  }
});

test("a line of the log is printable also when it has been parsed", () => {
  const line = printableJson(`${JSON.stringify({ msg: hostile })}\n`);
  assert.ok(line.endsWith("}\n"));
  assert.equal(JSON.parse(line).msg, String.raw`a\u202e\u009b\x1b[2J\u001b` + '\n\t"b"');
});
