import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { latestVersion, migrationText } from "../../../../src/manager/schema/migrations.js";

/** SHA-256, its first bytes. Tables are at these: what is to change is a migration of its own. */
const texts = [
  "462257e9ec2baa86",
  "c96950007eb2db7f",
  "d12766d9b6ca0a12",
  "8b358a94b015403f",
  "b60f34acccb5fba0",
  "3f684738d74bccfe",
  "adc79d58983ae5c0",
  "0af97ada331a18d6",
  "d6fad93cfa042fdd",
  "478b7e7a040179cb",
  "1bf862dde99828d9",
  "304501152d248589",
  "985613339a67adb5",
];

test("a migration that tables have been through is never changed", () => {
  assert.equal(latestVersion, texts.length);
  for (const [index, text] of texts.entries()) {
    const hash = createHash("sha256")
      .update(migrationText(index + 1))
      .digest("hex");
    assert.equal(hash.slice(0, text.length), text, `migration ${index + 1}`);
  }
});
