import assert from "node:assert/strict";
import { test } from "node:test";
import type { OutputFormat } from "../../../../src/shared/ipc/run.js";
import { createDatabase } from "../../../support/database.js";
import { ExecutorDriver } from "../../../support/executorDriver.js";

const database = await createDatabase();
const admin = await database.connect();
const driver = new ExecutorDriver(database.target, admin);
await driver.open(1);

const csv = { delimiter: ",", quote: '"', escape: '"' };

/** Inputs, and their output in a format that differs from the default in these properties. */
const outputs: Readonly<Record<string, readonly [string, string | null, Partial<OutputFormat>?]>> = {
  // Rows.
  "a single value is output as it is": ["SELECT 1", "1"],
  "one column has no header": ["SELECT 1 AS a", "1"],
  "several columns have a header": ["SELECT 1 AS a, 2 AS b", "a\tb\n1\t2"],
  "columns of the same name are all kept": ["SELECT 1 AS a, 2 AS a, 3", "a\ta\t?column?\n1\t2\t3"],
  "no header when it is off": ["SELECT 1 AS a, 2 AS b", "1\t2", { header: false }],
  "no header without rows": ["SELECT 1 AS a, 2 AS b WHERE false", null],
  "rows are joined by newline": ["SELECT generate_series(1, 3)", "1\n2\n3"],
  "statements are joined by newline, each with its header": [
    "SELECT 1 AS a, 2 AS b; SELECT 3; SELECT 4 AS c, 5 AS d; SELECT 6 AS e, 7 AS f",
    "a\tb\n1\t2\n3\nc\td\n4\t5\ne\tf\n6\t7",
  ],
  "a null is output as its text": ["SELECT NULL, 1", "?column?\t?column?\n\\N\t1"],
  "the text of a null can be set": [
    "SELECT NULL, 'x'",
    '"?column?"\t"?column?"\nnil\t"x"',
    { null: "nil", quote: '"' },
  ],
  "an empty string is not null": ["SELECT ''", ""],
  "rows of no columns are empty lines": ["SELECT FROM generate_series(1, 3)", "\n\n"],
  "one row of no columns is an empty string": ["SELECT", ""],
  "a SELECT without rows has no output": ["SELECT 1 WHERE false", null],
  "a SELECT without rows adds nothing to other output": ["SELECT 1; SELECT 2 WHERE false; SELECT 3", "1\n3"],
  "an empty input has no output": ["", null],
  "semicolons alone have no output": [" ;; ", null],
  "a comment alone has no output": ["-- nothing\n/* at all */", null],
  "values keep their newlines": ["SELECT E'a\\nb', E'c\\td'", "?column?\t?column?\na\nb\tc\td"],
  "values are the server's text": [
    "SELECT true AS b, '{1,2}'::int[], 1.50, '\\x00ff'::bytea",
    "b\tint4\t?column?\tbytea\nt\t{1,2}\t1.50\t\\x00ff",
  ],
  "characters of any length": ["SELECT 'ä€😀' || chr(65533)", "ä€😀\u{fffd}"],
  "no delimiter at all": ["SELECT 1 AS a, 2 AS b", "ab\n12", { delimiter: "" }],
  // Quotes.
  "strings and headers are quoted, the plain types are not": [
    "SELECT 'a'::text AS t, B'1'::bit AS bit, true AS bool, '1'::cid AS cid, 1::float4 AS f4, 1::float8 AS f8, " +
      "1::int2 AS i2, 1 AS i4, 1::int8 AS i8, 1::numeric AS num, 1::oid AS oid, '(0,1)'::tid AS tid, '1'::xid AS xid, " +
      "'x'::\"char\" AS ch, '2020-01-01'::date AS d, '[1]'::json AS j, B'1'::varbit AS vb, '{1}'::int[] AS ia",
    '"t","bit","bool","cid","f4","f8","i2","i4","i8","num","oid","tid","xid","ch","d","j","vb","ia"\n' +
      '"a",1,t,1,1,1,1,1,1,1,1,(0,1),1,"x","2020-01-01","[1]","1","{1}"',
    csv,
  ],
  "every value is quoted if `string` is off": [
    "SELECT 1, NULL, 'a'",
    '"?column?","?column?","?column?"\n"1",\\N,"a"',
    { ...csv, string: false },
  ],
  "a domain is quoted as its base type": [
    "CREATE DOMAIN whole AS int; SELECT 1::whole; DROP DOMAIN whole",
    "CREATE DOMAIN\n1\nDROP DOMAIN",
    csv,
  ],
  "a quote inside is escaped": [`SELECT 'a"b' AS "x""y", 2 AS z`, '"x""y","z"\n"a""b",2', csv],
  "an escape character inside is escaped": [`SELECT 'a"b\\c'`, '"a\\"b\\\\c"', { quote: '"', escape: "\\" }],
  "an escape character special to String.replace is nothing special": [
    "SELECT 'a$b\"c'",
    '"a$$b$"c"',
    { quote: '"', escape: "$" },
  ],
  "nothing is escaped without quotes": [`SELECT 'a\\b"'`, 'a\\b"', { escape: "\\" }],
  "nothing is escaped without escape": [`SELECT 'a"b'`, '"a"b"', { quote: '"' }],
  "tags are not quoted": ["DO 'BEGIN END'", "DO", csv],
  // Command tags.
  "statements without rows output their tags": [
    "CREATE TABLE tagged (i int); INSERT INTO tagged VALUES (1), (2); UPDATE tagged SET i = i; " +
      "DELETE FROM tagged WHERE i = 3; DELETE FROM tagged; DROP TABLE tagged",
    "CREATE TABLE\nINSERT 0 2\nUPDATE 2\nDELETE 0\nDELETE 2\nDROP TABLE",
  ],
  "RETURNING outputs rows and no tag": [
    "CREATE TEMP TABLE r (i int, j int); INSERT INTO r VALUES (1, 2) RETURNING *; " +
      "INSERT INTO r SELECT 1, 2 WHERE false RETURNING *",
    "CREATE TABLE\ni\tj\n1\t2",
  ],
  "SHOW outputs its value": ["SHOW server_encoding", "UTF8"],
  "VALUES outputs rows": ["VALUES (1, 'a'), (2, 'b')", "column1\tcolumn2\n1\ta\n2\tb"],
  "EXPLAIN outputs rows": ["EXPLAIN (COSTS OFF) SELECT 1", "Result"],
  "FETCH outputs rows, and no tag if there are none": [
    "BEGIN; DECLARE c SCROLL CURSOR FOR VALUES (1); FETCH c; FETCH c; MOVE BACKWARD ALL FROM c; CLOSE c; COMMIT",
    "BEGIN\nDECLARE CURSOR\n1\nMOVE 1\nCLOSE CURSOR\nCOMMIT",
  ],
  "SELECT INTO outputs its tag": ["SELECT 1 AS i INTO TEMP stored", "SELECT 1"],
  "CALL outputs its output parameters": [
    "CREATE PROCEDURE twice(INOUT i int) LANGUAGE sql AS 'SELECT i * 2'; CALL twice(21); DROP PROCEDURE twice",
    "CREATE PROCEDURE\n42\nDROP PROCEDURE",
  ],
  "EXECUTE outputs what its statement does": [
    "PREPARE p AS SELECT 1; EXECUTE p; PREPARE q AS UPDATE pg_class SET oid = 0 WHERE false; EXECUTE q",
    "PREPARE\n1\nPREPARE\nUPDATE 0",
  ],
  // COPY.
  "COPY TO STDOUT outputs its data and no tag": [
    "COPY (VALUES (1, 'a'), (2, NULL), (3, E'b\\nc')) TO STDOUT",
    "1\ta\n2\t\\N\n3\tb\\nc",
  ],
  "COPY TO STDOUT can follow and precede other statements": [
    "SELECT 0; COPY (SELECT 1) TO STDOUT; DO 'BEGIN END'",
    "0\n1\nDO",
  ],
  "COPY TO STDOUT with CSV and HEADER keeps both": [
    "COPY (SELECT 1 AS a, E'x\\ny' AS b) TO STDOUT (FORMAT csv, HEADER)",
    'a,b\n1,"x\ny"',
  ],
  "COPY TO STDOUT without rows has no output": ["COPY (SELECT 1 WHERE false) TO STDOUT", null],
  "COPY TO STDOUT of an empty line outputs an empty string": ["COPY (SELECT '') TO STDOUT", ""],
};

/** Inputs that fail, their output, and the first line of the error. */
const failures: Readonly<Record<string, readonly [string, string, string]>> = {
  "COPY FROM STDIN fails": [
    "CREATE TEMP TABLE c (i int); COPY c FROM STDIN; SELECT 1",
    "CREATE TABLE",
    "ERROR:  COPY from stdin failed: COPY FROM STDIN is not supported",
  ],
  "binary COPY TO STDOUT fails": [
    "SELECT 1; COPY (SELECT 1) TO STDOUT (FORMAT binary)",
    "1",
    "ERROR:  binary COPY TO STDOUT is not supported",
  ],
  "COPY in another encoding fails": [
    "SELECT 1; COPY (SELECT 'ä') TO STDOUT (ENCODING 'LATIN1')",
    "1",
    "ERROR:  output is not encoded in UTF8",
  ],
  "a binary cursor fails": [
    "BEGIN; DECLARE b BINARY CURSOR FOR SELECT 1; FETCH b",
    "BEGIN\nDECLARE CURSOR",
    "ERROR:  rows in binary format are not supported",
  ],
  "rows in another encoding fail": [
    "SET client_encoding = 'LATIN1'; SELECT 'ä'",
    "SET",
    "ERROR:  output is not encoded in UTF8",
  ],
  "rows before an error are kept": [
    "SELECT 1; SELECT 1 / (2 - i) FROM generate_series(1, 2) AS i",
    "1\n1",
    "ERROR:  division by zero",
  ],
  "a failed task without output has an empty output": ["SELECT 1/0", "", "ERROR:  division by zero"],
  "invalid SQL has no output but the error": [
    "SELECT 1; SELEC 2",
    "",
    'ERROR:  syntax error at or near "SELEC" at character 11',
  ],
};

for (const [title, [input, output, format]] of Object.entries(outputs)) {
  test(`output: ${title}`, async () => {
    const result = await driver.run(1, input, format);
    assert.deepEqual([result.error, result.output], [null, output]);
  });
}

for (const [title, [input, output, error]] of Object.entries(failures)) {
  test(`output: ${title}`, async () => {
    const result = await driver.run(1, input);
    assert.deepEqual([result.error?.split("\n")[0], result.output], [error, output]);
  });
}

test("the unquoted types have the server's OIDs", async () => {
  const names = "bit bool cid float4 float8 int2 int4 int8 numeric oid tid xid".split(" ");
  const { rows } = await admin.query<{ oid: number }>(
    "SELECT oid FROM pg_type WHERE typname = ANY ($1) AND typnamespace = 'pg_catalog'::regnamespace ORDER BY oid",
    [names],
  );
  assert.deepEqual(
    rows.map(({ oid }) => oid),
    [16, 20, 21, 23, 26, 27, 28, 29, 700, 701, 1560, 1700],
  );
});

test("100,000 rows are output whole", async () => {
  const { output } = await driver.run(1, "SELECT generate_series(1, 100000) AS i");
  assert.equal(output, Array.from({ length: 100_000 }, (_, index) => index + 1).join("\n"));
});
