import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { OutputFormatter } from "../../../../src/executor/output/outputFormatter.js";
import type { ServerMessage } from "../../../../src/shared/postgres/protocol/messages.js";
import type { OutputFormat } from "../../../../src/shared/ipc/messages.js";

const int4 = 23;
const text = 25;

const plain: OutputFormat = {
  header: true,
  string: true,
  delimiter: "\t",
  quote: "",
  escape: "",
  null: "\\N",
};

function make(
  format: Partial<OutputFormat>,
  events: readonly ServerMessage[],
  limit = 1 << 20,
): OutputFormatter {
  const output = new OutputFormatter({ ...plain, ...format }, limit, () => {});
  for (const event of events) output.receive(event);
  return output;
}

const column = (name: string, typeOid = text) => ({ name, typeOid, binary: false });

function rowsSet(
  names: readonly string[],
  rows: readonly (readonly (string | null)[])[],
): ServerMessage[] {
  return [
    { type: "rowDescription", columns: names.map((name) => column(name)) },
    ...rows.map((values): ServerMessage => ({ type: "dataRow", values })),
    { type: "commandComplete", tag: `SELECT ${rows.length}` },
  ];
}

/**
 * Reads what was written with quote and escape: fields of rows, null where the text of a null stands
 * without quotes.
 */
function parse(
  written: string,
  { delimiter, quote, escape, null: nil }: OutputFormat,
): (string | null)[][] {
  const rows: (string | null)[][] = [[]];
  let at = 0;
  for (;;) {
    if (written.startsWith(nil, at) && written[at] !== quote) {
      rows.at(-1)?.push(null);
      at += nil.length;
    } else {
      assert.equal(written[at++], quote);
      let value = "";
      const endsAt = (index: number) =>
        written[index] === quote && !(escape === quote && written[index + 1] === quote);
      for (; !endsAt(at); at++) {
        if (written[at] === escape) at++;
        assert.ok(at < written.length);
        value += written[at];
      }
      at++;
      rows.at(-1)?.push(value);
    }
    if (at === written.length) return rows;
    if (written[at] === "\n") rows.push([]);
    else assert.equal(written[at], delimiter);
    at++;
  }
}

test("what is written with quote and escape is read back as it was", () => {
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

test("output never exceeds its limit, keeps whole lines, and as many as fit", () => {
  const line = fc.string({ unit: fc.constantFrom("a", "ä", "€", "😀"), maxLength: 8 });
  fc.assert(
    fc.property(fc.array(line), fc.nat(60), (lines, limit) => {
      const output = make(
        {},
        rowsSet(
          ["a"],
          lines.map((value) => [value]),
        ),
        limit,
      );
      const fitting = lines.findLastIndex(
        (_, last) => Buffer.byteLength(lines.slice(0, last + 1).join("\n")) <= limit,
      );
      const kept = lines.slice(0, fitting + 1);
      assert.equal(output.text, kept.length === 0 ? null : kept.join("\n"));
      const expected = kept.length < lines.length ? `output exceeds ${limit} bytes` : null;
      assert.equal(output.failure, expected);
    }),
  );
});

test("its failure is told once, and nothing is added after it", () => {
  let told = 0;
  const output = new OutputFormatter(plain, 3, () => told++);
  for (const event of rowsSet(["a"], [["abc"], ["too long"], [""]])) output.receive(event);
  output.receive({ type: "commandComplete", tag: "" });
  assert.deepEqual([told, output.text], [1, "abc"]);
});

test("a header is kept only with the first of its rows", () => {
  const output = make({}, rowsSet(["a", "b"], [["long", "longer"]]), 5);
  assert.equal(output.text, null);
  assert.equal(output.failure, "output exceeds 5 bytes");
});

test("a header is quoted and escaped as strings are, whatever its column's type", () => {
  const output = make({ quote: '"', escape: "\\", delimiter: "," }, [
    { type: "rowDescription", columns: [column('a"b', int4), column("c\\d")] },
    { type: "dataRow", values: ["1", "2"] },
  ]);
  assert.equal(output.text, '"a\\"b","c\\\\d"\n1,"2"');
});

test("many short lines come out in order across the pieces they are joined to", () => {
  const lines = Array.from({ length: 50_000 }, (_, index) => String(index));
  assert.equal(
    make(
      {},
      rowsSet(
        ["a"],
        lines.map((value) => [value]),
      ),
    ).text,
    lines.join("\n"),
  );
});
