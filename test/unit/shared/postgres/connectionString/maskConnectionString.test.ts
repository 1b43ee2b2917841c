import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { maskConnectionString } from "../../../../../src/shared/postgres/connectionString/maskConnectionString.js";
import { parseConnectionString } from "../../../../../src/shared/postgres/connectionString/parse.js";
import { ConnectionStringError } from "../../../../../src/shared/postgres/errors.js";
import { secretRemotes } from "../../../../support/secretRemotes.js";

const messageOf = (text: string): string => {
  try {
    parseConnectionString(text);
    return "";
  } catch (error) {
    assert.ok(error instanceof ConnectionStringError, String(error));
    return error.message;
  }
};

test("no part of a password is shown, whatever it contains", () => {
  const between = fc.string({
    unit: fc.constantFrom(...Array.from("@:/?#&=%'\"\\ ;,[]-$\n")),
    minLength: 1,
    maxLength: 3,
  });
  const secret = fc.array(between).map((parts) => ["", ...parts, ""].join("hush"));
  fc.assert(
    fc.property(secret, (it) => {
      for (const remote of secretRemotes(`hush${it}`)) {
        assert.doesNotMatch(maskConnectionString(remote), /hush/, remote);
        assert.doesNotMatch(messageOf(remote), /hush/, remote);
      }
    }),
    { numRuns: 300, examples: [["&hush=hush"], ["&hush=%hush"]] },
  );
});

const shown = [
  ["", ""],
  ["host=a  port = 5 dbname='my shop' user=me@server", "host=a  port = 5 dbname='my shop' user=me@server"],
  ["host=a password='it\\'s' dbname='my shop'", "host=a password=*** dbname='my shop'"],
  ["service=x options='-c work_mem=5MB'", "service=x options='-c work_mem=5MB'"],
  ["postgresql://u%40x:p@h1:5,[::1]/d?sslmode=require", "postgresql://u%40x:***@h1:5,[::1]/d?sslmode=require"],
  ["postgresql://u@h/d?sslpassword=x&user=v", "postgresql://u@h/d?sslpassword=***&user=v"],
  ["postgresql://%2Fvar%2Frun/d", "postgresql://%2Fvar%2Frun/d"],
  ["no connection string", "***"],
] as const;
for (const [text, expected] of shown) {
  test(`${JSON.stringify(text)} is shown as ${JSON.stringify(expected)}`, () => {
    assert.equal(maskConnectionString(text), expected);
  });
}
