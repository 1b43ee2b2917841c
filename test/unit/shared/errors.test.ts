import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { runInNewContext } from "node:vm";
import { errorDefinitions, exitCodes } from "../../../src/shared/errorCodes.js";
import { errorMessage, partsOfError, PgTaskError, systemErrorCode, toReport } from "../../../src/shared/errors.js";
import { projectPath } from "../../support/project.js";

const document = readFileSync(projectPath("docs/errors.md"), "utf8");

describe("docs/errors.md", () => {
  it("lists every error code with the texts of the code", () => {
    const listed = document
      .split("\n")
      .filter((line) => /^\| [A-Z_]+ +\|/.test(line))
      .map((line) =>
        line
          .split("|")
          .slice(1, -1)
          .map((cell) => cell.trim()),
      );
    const expected = Object.entries(errorDefinitions).map(([code, definition]) => [
      code,
      definition.retryable ? "yes" : "no",
      definition.when,
      definition.remedy,
    ]);
    assert.deepEqual(listed, expected);
  });

  it("names the exit code of each family", () => {
    for (const [family, code] of Object.entries(exitCodes)) {
      assert.match(document, new RegExp(`\`${family}\`[^0-9]* ${code}`));
    }
  });

  it("names the family of every code whose first word is not its family", () => {
    const [, sentence = ""] = /The family is the code's first\s+word, but (.*?)\. A /s.exec(document) ?? [];
    const exceptions = sentence
      .split(";")
      .map((part) => [...part.matchAll(/[A-Z]+(?:_[A-Z]*)*/g)].map(([word]) => word));
    for (const [code, { family }] of Object.entries(errorDefinitions)) {
      if (code.startsWith(family)) continue;
      const [, ...rest] = exceptions.find((names) => names.includes(code)) ??
        exceptions.find(([start = " "]) => start.endsWith("_") && code.startsWith(start)) ?? [""];
      assert.equal(rest.at(-1), family, code);
    }
  });
});

const retryable = (sqlState: string): boolean =>
  new PgTaskError("CONNECTION_REJECTED", "refused", { sqlState }).retryable;

describe("PgTaskError", () => {
  it("has the exit code and the retryability of its code", () => {
    const invalid = new PgTaskError("CONFIG_INVALID", "no");
    assert.equal(invalid.exitCode, 2);
    assert.equal(invalid.retryable, false);
    assert.equal(new PgTaskError("CONNECTION_LOST", "gone").retryable, true);
  });

  it("is not retryable if the server refuses connections until a user acts", () => {
    const lasting = ["28P01", "28000", "3D000", "42501", "42704", "22023", "0A000", "55000", "57P04"];
    assert.deepEqual(lasting.filter(retryable), []);
    const passing = ["53300", "53400", "57P01", "57P02", "57P03", "08006", "58030"];
    assert.deepEqual(passing.filter(retryable), passing);
    assert.equal(new PgTaskError("CONNECTION_REJECTED", "no password").retryable, false);
    assert.equal(new PgTaskError("CONNECTION_LOST", "gone", { sqlState: "57P04" }).retryable, false);
  });
});

describe("toReport", () => {
  it("reports a lost connection without a stack, and anything unexpected as INTERNAL", () => {
    const reset = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
    const message = "Client has encountered a connection error and is not queryable";
    assert.deepEqual(toReport(reset), { code: "CONNECTION_LOST", message: "read ECONNRESET" });
    assert.deepEqual(toReport(new Error(message)), {
      code: "CONNECTION_LOST",
      message: "the connection ended",
    });
    assert.equal(toReport(new TypeError("x is not a function")).code, "INTERNAL");
  });
});

it("knows errors of another context, which is what Node's own errors are in Jest", () => {
  const reset: unknown = runInNewContext(`Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" })`);
  assert.equal(reset instanceof Error, false);
  assert.deepEqual(toReport(reset), { code: "CONNECTION_LOST", message: "read ECONNRESET" });
  assert.equal(systemErrorCode(reset), "ECONNRESET");
  assert.equal(errorMessage(reset), "read ECONNRESET");
  assert.equal(partsOfError(runInNewContext("new AggregateError([1, 2])"))?.join(), "1,2");
  assert.equal(partsOfError(reset), null);
});
