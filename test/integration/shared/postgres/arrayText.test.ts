import assert from "node:assert/strict";
import * as fc from "fast-check";
import { arrayLiteral, textArrayLiteral } from "../../../../src/shared/postgres/arrayText.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";

const database = await createDatabase("empty");
const client = await database.connect();

async function read(type: string, text: string): Promise<unknown> {
  const { rows } = await client.query<{ elements: unknown }>(`SELECT to_jsonb($1::${type}[]) AS elements`, [text]);
  return rows[0]?.elements;
}

/** Arbitrary text that the server can store. */
const storable = fc
  .oneof(
    fc.string({ unit: "grapheme" }),
    fc.string({ unit: fc.constantFrom('"', "\\", "{", "}", ",", "\n", " ", "'", "N", "U", "L") }),
    fc.constant("NULL"),
  )
  .filter((text) => !text.includes("\0"));

test("the server reads back any text array unchanged", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.option(storable)), async (texts) => {
      assert.deepEqual(await read("text", textArrayLiteral(texts)), texts);
    }),
  );
});

test("the server reads back numbers and nulls unchanged", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.option(fc.integer())), async (numbers) => {
      assert.deepEqual(await read("integer", arrayLiteral(numbers)), numbers);
    }),
  );
});
