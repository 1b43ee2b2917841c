import assert from "node:assert/strict";
import { test } from "node:test";
import { beginsTransaction, isPlain, isSingle } from "../../src/executor/inputWords.js";

test("an input that begins its transaction itself is known by its first words", () => {
  for (const input of [
    "BEGIN",
    "begin; SELECT 1",
    " \n\t; Begin Read Only",
    "start  transaction",
    "-- one\n/* two /* three */ */ -- four\n;BEGIN",
  ]) {
    assert.equal(beginsTransaction(input), true, input);
  }
  for (const input of [
    "",
    "SELECT 1; BEGIN",
    "BEGINNING",
    "-- BEGIN",
    "/* BEGIN",
    "/* /* */ BEGIN",
    "start",
    "'BEGIN'",
  ]) {
    assert.equal(beginsTransaction(input), false, input);
  }
});

test("an input is plain when no word of it could make its run go otherwise", () => {
  for (const input of [
    "SELECT 1",
    "INSERT INTO commitments SELECT pg_backend_pid()",
    "UPDATE t SET do_it = true, endless = default_transaction_isolation()",
  ]) {
    assert.equal(isPlain(input), true, input);
  }
  for (const input of [
    "SELECT 1;commit",
    "INSERT INTO t VALUES (1);ABORT",
    "SET transaction_isolation = 'serializable'",
    "set TRANSACTION read only",
    "COPY t FROM STDIN",
    "/**/Vacuum",
    "DO $$ $$",
    "SELECT 1 -- Rollback",
    "x".repeat(100_000),
  ]) {
    assert.equal(isPlain(input), false, input.slice(0, 80));
  }
});

test("an input is single when the extended protocol answers it as the simple one does", () => {
  for (const input of ["", "SELECT 1", "SELECT 1; \n", "SELECT $$x$$", "-- nothing"]) {
    assert.equal(isSingle(input), true, input);
  }
  for (const input of [
    "SELECT 1; SELECT 2",
    "SELECT ';'",
    "SELECT $1",
    "SELECT count(*) FROM pg_cursors",
    "DECLARE c CURSOR FOR SELECT 1",
  ]) {
    assert.equal(isSingle(input), false, input);
  }
});
