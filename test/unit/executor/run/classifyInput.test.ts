import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  beginsTransaction,
  isWrappable,
  isSingleStatement,
  mayNeedTransactionBlock,
  mayOutliveReset,
} from "../../../../src/executor/run/classifyInput.js";

test("recognizes an input that begins a transaction", () => {
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

test("an input is wrappable if no keyword in it could change how it runs", () => {
  for (const input of [
    "SELECT 1",
    "INSERT INTO commitments SELECT pg_backend_pid()",
    "UPDATE t SET do_it = true, endless = default_transaction_isolation()",
  ]) {
    assert.equal(isWrappable(input), true, input);
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
    assert.equal(isWrappable(input), false, input.slice(0, 80));
  }
});

test("an input is a single statement if both query protocols answer it alike", () => {
  for (const input of ["", "SELECT 1", "SELECT 1; \n", "SELECT $$x$$", "-- nothing"]) {
    assert.equal(isSingleStatement(input), true, input);
  }
  for (const input of [
    "SELECT 1; SELECT 2",
    "SELECT ';'",
    "SELECT $1",
    "SELECT count(*) FROM pg_cursors",
    "DECLARE c CURSOR FOR SELECT 1",
  ]) {
    assert.equal(isSingleStatement(input), false, input);
  }
});

test("recognizes statements that need a transaction block", () => {
  for (const input of ["LOCK TABLE t", "SET local work_mem = '7MB'", "savepoint s"]) {
    assert.equal(mayNeedTransactionBlock(input), true, input);
  }
  for (const input of ["SELECT 1", "INSERT INTO locks SELECT locality FROM savepoints"]) {
    assert.equal(mayNeedTransactionBlock(input), false, input);
  }
});

describe("state that may outlive a session reset", () => {
  for (const input of [
    "SELECT setseed(0.1)",
    "SET seed = 0.1",
    "SET SESSION/**/Seed TO 0.1",
    'SET"seed"TO 0.1',
    "SELECT set_config('SEED', '0.1', true)",
    "SELECT dblink_connect('c', '')",
    "SELECT * FROM dblink('', 'SELECT 1') AS t(a int)",
    "SELECT pg_backup_start('b')",
    "SELECT pg_start_backup('b')",
    "SELECT pg_replication_origin_session_setup('o')",
    "SELECT pg_create_logical_replication_slot('s', 'p', true)",
    "SELECT pg_copy_physical_replication_slot('s', 't', true)",
    "LOAD 'auto_explain'",
    "SET my.var = 1",
    'SET LOCAL "my".var TO 1',
    "set session my.var = 1",
    "SELECT set_config('my.var', '1', true)",
    "SELECT set_config(name, '1', true) FROM x",
    "SELECT set_config('my' || '.x', '1', false)",
    "SELECT set_config('my'\n'.x', '1', false)",
    String.raw`SELECT set_config(E'my\x2ex', '1', false)`,
    String.raw`SELECT set_config('my\056x', '1', false)`,
    "SET/* c */my.x = 1",
    "SET -- c\n my.x = 1",
    "SET/**/LOCAL/* a */-- b\r\n/* c */my/* d */./* e */x = 1",
    "SET /* one /* two */ */ my.x = 1",
    "SET /* one -- */ /* two */ -- three\n -- four\n -- five\n my.x = 1",
    `SET /* ${"long ".repeat(100)} */ my.x = 1`,
    "SET größe.x = 1",
    "SET äpfel.x = 1",
    "SET local.x = 1",
    'SET"my".x = 1',
    'SET "my x".y = 1',
    'SET "my""x".y = 1',
    'SET U&"my".x = 1',
    String.raw`SELECT U&"set\0073eed"(0.5)`,
    "RESET my.x",
    "LOAD /* it */ 'auto_explain'",
    "LOAD U&'auto_explain'",
    `SELECT '${"x".repeat(70_000)}'`,
  ]) {
    test(`is recognized: ${input.slice(0, 60)}`, () => assert.equal(mayOutliveReset(input), true));
  }

  for (const input of [
    "SELECT 1",
    "SET work_mem = '1MB'",
    "SET pg_task.max = 3",
    'SET LOCAL pg_task."group" = x',
    "SELECT set_config('work_mem', '1MB', false), set_config('pg_task.max', '3', false)",
    "UPDATE t SET a = b.c FROM b",
    "SELECT payload, load FROM t",
    "UPDATE t SET -- why\n a = b.c /* . */ FROM b",
    'UPDATE t SET "a" = b.c FROM b',
    "SET /* one */ LOCAL -- two\n work_mem /* three */ = '1.5MB'",
    "RESET work_mem; SELECT set_config( 'work_mem' , '1.5MB', false)",
    "SELECT settings.x, reset.x, offset_ FROM settings, reset",
    "UPDATE t SET seeds = 1, seed_x = 2",
    "SELECT set_config('seed_page_cost', '1', false)",
  ]) {
    test(`is not assumed: ${input}`, () => assert.equal(mayOutliveReset(input), false));
  }
});

test("long inputs that resemble settings are classified in linear time", () => {
  const comment = `/* ${"set ".repeat(49)}*/`;
  for (const part of [
    "set ",
    "set\n",
    "set x ",
    "set local x ",
    'set"x"=',
    'set "" ',
    "set_config('a',",
    "-- set =\n",
    "/* set */",
    "-",
    "/",
    " ",
    '"',
    "é",
    "set x /* y */ ",
    `set ${comment.repeat(4)} x `,
    `set ${comment.repeat(4)} local ${comment.repeat(4)} x ${comment.repeat(4)} = `,
  ]) {
    const input = part.repeat((1 << 16) / part.length);
    assert.equal(mayOutliveReset(input), false, part);
  }
});
