import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { errorKinds, exitCodes, PgTaskError, toReport } from "../../../src/shared/errors.js";
import { projectPath } from "../../support/project.js";

const document = readFileSync(projectPath("docs/errors.md"), "utf8");

describe("docs/errors.md", () => {
  it("lists every error with its words, and no other", () => {
    const listed = document
      .split("\n")
      .filter((line) => /^\| [A-Z_]+ +\|/.test(line))
      .map((line) =>
        line
          .split("|")
          .slice(1, -1)
          .map((cell) => cell.trim()),
      );
    const expected = Object.entries(errorKinds).map(([code, kind]) => [
      code,
      kind.retryable ? "yes" : "no",
      kind.when,
      kind.remedy,
    ]);
    assert.deepEqual(listed, expected);
  });

  it("names the exit code of each family", () => {
    for (const [family, code] of Object.entries(exitCodes)) {
      assert.match(document, new RegExp(`\`${family}\`[^0-9]* ${code}`));
    }
  });

  it("says which family a code is of that does not begin with its family's name", () => {
    const [, sentence = ""] =
      /The family is the code's first\s+word, but (.*?)\. A /s.exec(document) ?? [];
    const said = sentence
      .split(";")
      .map((part) => [...part.matchAll(/[A-Z]+(?:_[A-Z]*)*/g)].map(([word]) => word));
    for (const [code, { family }] of Object.entries(errorKinds)) {
      if (code.startsWith(family)) continue;
      const [, ...rest] = said.find((names) => names.includes(code)) ??
        said.find(([start = " "]) => start.endsWith("_") && code.startsWith(start)) ?? [""];
      assert.equal(rest.at(-1), family, code);
    }
  });
});

describe("an error", () => {
  it("has the exit code of its family and knows whether trying again may help", () => {
    const invalid = new PgTaskError("CONFIG_INVALID", "no");
    assert.equal(invalid.exitCode, 2);
    assert.equal(invalid.retryable, false);
    assert.equal(new PgTaskError("CONNECTION_LOST", "gone").retryable, true);
  });
});

describe("toReport", () => {
  it("tells a connection that has gone from what should not happen, without a stack", () => {
    const reset = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
    const words = "Client has encountered a connection error and is not queryable";
    assert.deepEqual(toReport(reset), { code: "CONNECTION_LOST", message: "read ECONNRESET" });
    assert.deepEqual(toReport(new Error(words)), {
      code: "CONNECTION_LOST",
      message: "the connection ended",
    });
    assert.equal(toReport(new TypeError("x is not a function")).code, "INTERNAL");
  });
});
