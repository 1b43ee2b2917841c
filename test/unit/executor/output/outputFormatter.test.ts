import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import * as fc from "fast-check";
import { OutputFormatter } from "../../../../src/executor/output/outputFormatter.js";
import { maxBufferedBytes } from "../../../../src/executor/tuning.js";
import { parseOutput } from "../../../../src/library/parseOutput.js";
import type { ServerMessage } from "../../../../src/shared/postgres/protocol/decode.js";
import { defaultFormat } from "../../../support/executors.js";
import type { OutputFormat } from "../../../../src/shared/ipc/run.js";

const text = 25;

function make(format: Partial<OutputFormat>, events: readonly ServerMessage[], limit = 1 << 20): OutputFormatter {
  const output = new OutputFormatter({ ...defaultFormat, ...format }, limit, { failed() {} });
  for (const event of events) output.receive(event);
  made.push(output);
  return output;
}

const made: OutputFormatter[] = [];
// A buffer that is left counts towards the limit of this thread, in which other files run as well.
afterEach(() => made.splice(0).forEach((output) => output.discard()));

const column = (name: string, typeOid = text) => ({ name, typeOid, binary: false });

function rowsSet(names: readonly string[], rows: readonly (readonly (string | null)[])[]): ServerMessage[] {
  return [
    { type: "rowDescription", columns: names.map((name) => column(name)) },
    ...rows.map((values): ServerMessage => ({ type: "dataRow", values })),
    { type: "commandComplete", tag: `SELECT ${rows.length}` },
  ];
}

const oneColumn = (values: readonly string[]): ServerMessage[] => {
  const rows = values.map((value) => [value]);
  return rowsSet(["a"], rows);
};

/** Parses output that was written with `quote` and `escape` into rows. An unquoted `null` text becomes null. */
function parse(written: string, { delimiter, quote, escape, null: nil }: OutputFormat): (string | null)[][] {
  const rows: (string | null)[][] = [[]];
  let index = 0;
  for (;;) {
    if (written.startsWith(nil, index) && written[index] !== quote) {
      rows.at(-1)?.push(null);
      index += nil.length;
    } else {
      assert.equal(written[index++], quote);
      let value = "";
      const endsAt = (end: number) => written[end] === quote && !(escape === quote && written[end + 1] === quote);
      for (; !endsAt(index); index++) {
        if (written[index] === escape) index++;
        assert.ok(index < written.length);
        value += written[index];
      }
      index++;
      rows.at(-1)?.push(value);
    }
    if (index === written.length) return rows;
    if (written[index] === "\n") rows.push([]);
    else assert.equal(written[index], delimiter);
    index++;
  }
}

test("output written with quote and escape parses back to the same values", () => {
  const special = ["'", '"', "\\", ",", ";", "\t", "\n", "$", "N", "a", "ä", "😀"];
  const value = fc.string({ unit: fc.constantFrom(...special) });
  const format = fc.record({
    header: fc.constant(false),
    string: fc.boolean(),
    delimiter: fc.constantFrom(",", "\t", ";", "a"),
    quote: fc.constantFrom('"', "'", "$"),
    escape: fc.constantFrom('"', "'", "\\", "$"),
    null: fc.constantFrom("\\N", "", "null"),
  });
  const rows = fc.integer({ min: 1, max: 4 }).chain((width) =>
    fc.array(fc.array(fc.option(value), { minLength: width, maxLength: width }), {
      minLength: 1,
    }),
  );
  fc.assert(
    fc.property(format, rows, (chosen, values) => {
      const names = values[0]?.map((_, index) => `c${index}`) ?? [];
      const written = make(chosen, rowsSet(names, values)).text;
      assert.deepEqual(parse(written ?? "", chosen), values);
    }),
  );
});

test("output within the limit keeps as many whole lines as fit", () => {
  const line = fc.string({ unit: fc.constantFrom("a", "ä", "€", "😀"), maxLength: 8 });
  fc.assert(
    fc.property(fc.array(line), fc.nat(60), (lines, limit) => {
      const output = make({}, oneColumn(lines), limit);
      const fitting = lines.findLastIndex((_, last) => Buffer.byteLength(lines.slice(0, last + 1).join("\n")) <= limit);
      const kept = lines.slice(0, fitting + 1);
      assert.equal(output.text, kept.length === 0 ? null : kept.join("\n"));
      const expected = kept.length < lines.length ? `output exceeds ${limit} bytes (pg_task.output)` : null;
      assert.equal(output.failure, expected);
    }),
  );
});

test("a header is kept only together with its first row", () => {
  const output = make({}, rowsSet(["a", "b"], [["long", "longer"]]), 5);
  assert.deepEqual([output.text, output.failure], [null, "output exceeds 5 bytes (pg_task.output)"]);
});

test("exceeding the limit is reported once, and nothing is added afterwards", () => {
  let failures = 0;
  const output = new OutputFormatter(defaultFormat, 3, { failed: () => failures++ });
  for (const event of rowsSet(["a"], [["abc"], ["too long"], [""]])) output.receive(event);
  output.receive({ type: "commandComplete", tag: "" });
  assert.deepEqual([failures, output.text], [1, "abc"]);
});

test("output near the limit is reported once, also when it is only announced", () => {
  let warnings = 0;
  const output = new OutputFormatter(defaultFormat, maxBufferedBytes + 6, { failed() {}, near: () => warnings++ });
  output.receive({ type: "announced", bytes: 6 });
  assert.equal(warnings, 0);
  output.receive({ type: "announced", bytes: 7 });
  for (const event of rowsSet(["a"], [["1234567"]])) output.receive(event);
  assert.deepEqual([warnings, output.failure], [1, null]);
});

test("the library reads what was written, with the names of the columns", () => {
  const cell = fc.option(fc.string({ unit: fc.constantFrom("a", '"', "'", "\\", "\t", "\n", ",", "N", "1", "é") }), {
    nil: null,
  });
  const table = fc
    .uniqueArray(fc.constantFrom("id", "a b", 'q"', "t\tb", "__proto__", "\\N", ""), { minLength: 1, maxLength: 4 })
    .chain((names) =>
      fc.tuple(
        fc.constant(names),
        fc.array(fc.array(cell, { minLength: names.length, maxLength: names.length }), { minLength: 1, maxLength: 4 }),
      ),
    );
  const formats = fc.record({
    header: fc.boolean(),
    delimiter: fc.constantFrom("\t", ",", ";"),
    quote: fc.constantFrom('"', "'"),
    escape: fc.constantFrom('"', "'", "\\"),
    null: fc.constantFrom("\\N", "", "NULL"),
  });
  fc.assert(
    fc.property(table, formats, fc.boolean(), ([names, rows], format, tagged) => {
      const events: ServerMessage[] = [...rowsSet(names, rows)];
      if (tagged) events.push({ type: "commandComplete", tag: "DELETE 0" });
      const output = make(format, events).text;
      const used = names.map((name, index) => (format.header && names.length > 1 ? name : `${index + 1}`));
      const expected = rows.map((values) => Object.fromEntries(values.map((value, index) => [used[index], value])));
      const tag = tagged ? [Object.fromEntries([["1", "DELETE 0"]])] : [];
      // A line without any value is the same as no output.
      const isEmpty = output === "";
      assert.deepEqual(parseOutput({ ...defaultFormat, ...format, output }), isEmpty ? [] : [...expected, ...tag]);
    }),
    { numRuns: 2_000 },
  );
});

const read = (output: string | null, format: Partial<OutputFormat> = {}): unknown =>
  parseOutput({ ...defaultFormat, ...format, output });

test("the library reads outputs without quotes, of several results, and of none", () => {
  assert.deepEqual(read(null), []);
  assert.deepEqual(read(""), []);
  assert.deepEqual(read("a\tb\n1\t\\N\n\t2"), [
    { a: "1", b: null },
    { a: "", b: "2" },
  ]);
  assert.deepEqual(read("a\tb\n1\t2\nINSERT 0 1\nx\ty\tz\n3\t4\t5"), [
    { a: "1", b: "2" },
    { 1: "INSERT 0 1" },
    { x: "3", y: "4", z: "5" },
  ]);
  assert.deepEqual(read("1\t2\n3\t4", { header: false }), [
    { 1: "1", 2: "2" },
    { 1: "3", 2: "4" },
  ]);
  assert.deepEqual(read("7"), [{ 1: "7" }]);
  assert.deepEqual(read('"open\tx', { quote: '"', header: false }), [{ 1: '"open', 2: "x" }]);
  assert.deepEqual(read('"a"b"\t"c"', { quote: '"', header: false }), [{ 1: 'a"b', 2: "c" }]);
});
