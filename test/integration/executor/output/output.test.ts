import assert from "node:assert/strict";
import { test } from "node:test";
import type { OutputFormat } from "../../../../src/shared/ipc/run.js";
import { createDatabase } from "../../../support/database.js";
import { ExecutorDriver } from "../../../support/executorDriver.js";

const database = await createDatabase();
const admin = await database.connect();
const driver = new ExecutorDriver(database.target, admin);
await driver.open(1);

interface Case {
  readonly title: string;
  readonly input: string;
  readonly output: string | null;
  /** First line of the expected error. Absent if no error is expected. */
  readonly error?: string;
  readonly format?: Partial<OutputFormat>;
}

const csv = { delimiter: ",", quote: '"', escape: '"' };

const cases: readonly Case[] = [
  // Rows.
  { title: "a single value is output as it is", input: "SELECT 1", output: "1" },
  { title: "one column has no header", input: "SELECT 1 AS a", output: "1" },
  { title: "several columns have a header", input: "SELECT 1 AS a, 2 AS b", output: "a\tb\n1\t2" },
  {
    title: "columns of the same name are all kept",
    input: "SELECT 1 AS a, 2 AS a, 3",
    output: "a\ta\t?column?\n1\t2\t3",
  },
  {
    title: "no header when it is off",
    input: "SELECT 1 AS a, 2 AS b",
    output: "1\t2",
    format: { header: false },
  },
  { title: "no header without rows", input: "SELECT 1 AS a, 2 AS b WHERE false", output: null },
  { title: "rows are joined by newline", input: "SELECT generate_series(1, 3)", output: "1\n2\n3" },
  {
    title: "statements are joined by newline, each with its header",
    input: "SELECT 1 AS a, 2 AS b; SELECT 3; SELECT 4 AS c, 5 AS d; SELECT 6 AS e, 7 AS f",
    output: "a\tb\n1\t2\n3\nc\td\n4\t5\ne\tf\n6\t7",
  },
  {
    title: "a null is output as its text",
    input: "SELECT NULL, 1",
    output: "?column?\t?column?\n\\N\t1",
  },
  {
    title: "the text of a null can be set",
    input: "SELECT NULL, 'x'",
    output: '"?column?"\t"?column?"\nnil\t"x"',
    format: { null: "nil", quote: '"' },
  },
  { title: "an empty string is not null", input: "SELECT ''", output: "" },
  {
    title: "rows of no columns are empty lines",
    input: "SELECT FROM generate_series(1, 3)",
    output: "\n\n",
  },
  { title: "one row of no columns is an empty string", input: "SELECT", output: "" },
  { title: "a SELECT without rows has no output", input: "SELECT 1 WHERE false", output: null },
  {
    title: "a SELECT without rows adds nothing to other output",
    input: "SELECT 1; SELECT 2 WHERE false; SELECT 3",
    output: "1\n3",
  },
  { title: "an empty input has no output", input: "", output: null },
  { title: "semicolons alone have no output", input: " ;; ", output: null },
  { title: "a comment alone has no output", input: "-- nothing\n/* at all */", output: null },
  {
    title: "values keep their newlines",
    input: "SELECT E'a\\nb', E'c\\td'",
    output: "?column?\t?column?\na\nb\tc\td",
  },
  {
    title: "values are the server's text",
    input: "SELECT true AS b, '{1,2}'::int[], 1.50, '\\x00ff'::bytea",
    output: "b\tint4\t?column?\tbytea\nt\t{1,2}\t1.50\t\\x00ff",
  },
  {
    title: "characters of any length",
    input: "SELECT 'ä€😀' || chr(65533)",
    output: "ä€😀\u{fffd}",
  },
  {
    title: "no delimiter at all",
    input: "SELECT 1 AS a, 2 AS b",
    output: "ab\n12",
    format: { delimiter: "" },
  },
  // Quotes.
  {
    title: "strings and headers are quoted, the plain types are not",
    input:
      "SELECT 'a'::text AS t, B'1'::bit AS bit, true AS bool, '1'::cid AS cid, 1::float4 AS f4, 1::float8 AS f8, " +
      "1::int2 AS i2, 1 AS i4, 1::int8 AS i8, 1::numeric AS num, 1::oid AS oid, '(0,1)'::tid AS tid, '1'::xid AS xid, " +
      "'x'::\"char\" AS ch, '2020-01-01'::date AS d, '[1]'::json AS j, B'1'::varbit AS vb, '{1}'::int[] AS ia",
    output:
      '"t","bit","bool","cid","f4","f8","i2","i4","i8","num","oid","tid","xid","ch","d","j","vb","ia"\n' +
      '"a",1,t,1,1,1,1,1,1,1,1,(0,1),1,"x","2020-01-01","[1]","1","{1}"',
    format: csv,
  },
  {
    title: "every value is quoted if `string` is off",
    input: "SELECT 1, NULL, 'a'",
    output: '"?column?","?column?","?column?"\n"1",\\N,"a"',
    format: { ...csv, string: false },
  },
  {
    title: "a domain is quoted as its base type",
    input: "CREATE DOMAIN whole AS int; SELECT 1::whole; DROP DOMAIN whole",
    output: "CREATE DOMAIN\n1\nDROP DOMAIN",
    format: csv,
  },
  {
    title: "a quote inside is escaped",
    input: `SELECT 'a"b' AS "x""y", 2 AS z`,
    output: '"x""y","z"\n"a""b",2',
    format: csv,
  },
  {
    title: "an escape character inside is escaped",
    input: `SELECT 'a"b\\c'`,
    output: '"a\\"b\\\\c"',
    format: { quote: '"', escape: "\\" },
  },
  {
    title: "an escape character special to String.replace is nothing special",
    input: "SELECT 'a$b\"c'",
    output: '"a$$b$"c"',
    format: { quote: '"', escape: "$" },
  },
  {
    title: "nothing is escaped without quotes",
    input: `SELECT 'a\\b"'`,
    output: 'a\\b"',
    format: { escape: "\\" },
  },
  {
    title: "nothing is escaped without escape",
    input: `SELECT 'a"b'`,
    output: '"a"b"',
    format: { quote: '"' },
  },
  { title: "tags are not quoted", input: "DO 'BEGIN END'", output: "DO", format: csv },
  // Command tags.
  {
    title: "statements without rows output their tags",
    input:
      "CREATE TABLE tagged (i int); INSERT INTO tagged VALUES (1), (2); UPDATE tagged SET i = i; " +
      "DELETE FROM tagged WHERE i = 3; DELETE FROM tagged; DROP TABLE tagged",
    output: "CREATE TABLE\nINSERT 0 2\nUPDATE 2\nDELETE 0\nDELETE 2\nDROP TABLE",
  },
  {
    title: "RETURNING outputs rows and no tag",
    input:
      "CREATE TEMP TABLE r (i int, j int); INSERT INTO r VALUES (1, 2) RETURNING *; " +
      "INSERT INTO r SELECT 1, 2 WHERE false RETURNING *",
    output: "CREATE TABLE\ni\tj\n1\t2",
  },
  { title: "SHOW outputs its value", input: "SHOW server_encoding", output: "UTF8" },
  {
    title: "VALUES outputs rows",
    input: "VALUES (1, 'a'), (2, 'b')",
    output: "column1\tcolumn2\n1\ta\n2\tb",
  },
  { title: "EXPLAIN outputs rows", input: "EXPLAIN (COSTS OFF) SELECT 1", output: "Result" },
  {
    title: "FETCH outputs rows, and no tag if there are none",
    input: "BEGIN; DECLARE c SCROLL CURSOR FOR VALUES (1); FETCH c; FETCH c; MOVE BACKWARD ALL FROM c; CLOSE c; COMMIT",
    output: "BEGIN\nDECLARE CURSOR\n1\nMOVE 1\nCLOSE CURSOR\nCOMMIT",
  },
  {
    title: "SELECT INTO outputs its tag",
    input: "SELECT 1 AS i INTO TEMP stored",
    output: "SELECT 1",
  },
  {
    title: "CALL outputs its output parameters",
    input: "CREATE PROCEDURE twice(INOUT i int) LANGUAGE sql AS 'SELECT i * 2'; CALL twice(21); DROP PROCEDURE twice",
    output: "CREATE PROCEDURE\n42\nDROP PROCEDURE",
  },
  {
    title: "EXECUTE outputs what its statement does",
    input: "PREPARE p AS SELECT 1; EXECUTE p; PREPARE q AS UPDATE pg_class SET oid = 0 WHERE false; EXECUTE q",
    output: "PREPARE\n1\nPREPARE\nUPDATE 0",
  },
  // COPY.
  {
    title: "COPY TO STDOUT outputs its data and no tag",
    input: "COPY (VALUES (1, 'a'), (2, NULL), (3, E'b\\nc')) TO STDOUT",
    output: "1\ta\n2\t\\N\n3\tb\\nc",
  },
  {
    title: "COPY TO STDOUT can follow and precede other statements",
    input: "SELECT 0; COPY (SELECT 1) TO STDOUT; DO 'BEGIN END'",
    output: "0\n1\nDO",
  },
  {
    title: "COPY TO STDOUT with CSV and HEADER keeps both",
    input: "COPY (SELECT 1 AS a, E'x\\ny' AS b) TO STDOUT (FORMAT csv, HEADER)",
    output: 'a,b\n1,"x\ny"',
  },
  {
    title: "COPY TO STDOUT without rows has no output",
    input: "COPY (SELECT 1 WHERE false) TO STDOUT",
    output: null,
  },
  {
    title: "COPY TO STDOUT of an empty line outputs an empty string",
    input: "COPY (SELECT '') TO STDOUT",
    output: "",
  },
  {
    title: "COPY FROM STDIN fails",
    input: "CREATE TEMP TABLE c (i int); COPY c FROM STDIN; SELECT 1",
    output: "CREATE TABLE",
    error: "ERROR:  COPY from stdin failed: COPY FROM STDIN is not supported",
  },
  {
    title: "binary COPY TO STDOUT fails",
    input: "SELECT 1; COPY (SELECT 1) TO STDOUT (FORMAT binary)",
    output: "1",
    error: "ERROR:  binary COPY TO STDOUT is not supported",
  },
  {
    title: "COPY in another encoding fails",
    input: "SELECT 1; COPY (SELECT 'ä') TO STDOUT (ENCODING 'LATIN1')",
    output: "1",
    error: "ERROR:  output is not encoded in UTF8",
  },
  // Output that is not text.
  {
    title: "a binary cursor fails",
    input: "BEGIN; DECLARE b BINARY CURSOR FOR SELECT 1; FETCH b",
    output: "BEGIN\nDECLARE CURSOR",
    error: "ERROR:  rows in binary format are not supported",
  },
  {
    title: "rows in another encoding fail",
    input: "SET client_encoding = 'LATIN1'; SELECT 'ä'",
    output: "SET",
    error: "ERROR:  output is not encoded in UTF8",
  },
  // Errors.
  {
    title: "rows before an error are kept",
    input: "SELECT 1; SELECT 1 / (2 - i) FROM generate_series(1, 2) AS i",
    output: "1\n1",
    error: "ERROR:  division by zero",
  },
  {
    title: "a failed task without output has an empty output",
    input: "SELECT 1/0",
    output: "",
    error: "ERROR:  division by zero",
  },
  {
    title: "invalid SQL has no output but the error",
    input: "SELECT 1; SELEC 2",
    output: "",
    error: 'ERROR:  syntax error at or near "SELEC" at character 11',
  },
];

for (const { title, input, output, error, format } of cases) {
  test(`output: ${title}`, async () => {
    const result = await driver.run(1, input, format);
    assert.equal(result.error?.split("\n")[0], error, result.error ?? "no error");
    assert.equal(result.output, output);
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
