import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { keywords } from "../../../../../src/shared/postgres/connectionString/keywords.js";
import { quoteValue } from "../../../../../src/shared/postgres/connectionString/parseKeyValues.js";
import { parseConnectionString } from "../../../../../src/shared/postgres/connectionString/parse.js";
import { ConnectionStringError } from "../../../../../src/shared/postgres/errors.js";

const parseOptions = (text: string) => Object.fromEntries(parseConnectionString(text));

const refusal = (text: string): string => {
  try {
    parseConnectionString(text);
  } catch (error) {
    assert.ok(error instanceof ConnectionStringError, String(error));
    return error.message;
  }
  return assert.fail(`${text} was accepted`);
};

/** Connection strings, with the options that psql reads from them. */
const parsed: readonly (readonly [string, Record<string, string>])[] = [
  ["", {}],
  [" \t\n\v\f\r", {}],
  ["host=a", { host: "a" }],
  ["host = a port\t=\n5", { host: "a", port: "5" }],
  ["host='a b'", { host: "a b" }],
  ["host='a'port=5", { host: "a", port: "5" }],
  ["host='it\\'s' user='\\\\'", { host: "it's", user: "\\" }],
  ["host=it\\'s\\ here", { host: "it's here" }],
  ["host=a'b'", { host: "a'b'" }],
  ["host=a\\", { host: "a" }],
  ["host= port=5", { host: "port=5" }],
  ["host='' port=5", { port: "5" }],
  ["host=", {}],
  ["host=a host=b", { host: "b" }],
  ["password=a=b", { password: "a=b" }],
  ["user=\u00a0", { user: "\u00a0" }],
  ["requiressl=1", { sslmode: "require" }],
  ["requiressl=0", { sslmode: "prefer" }],
  ["postgresql://", {}],
  ["postgres://h", { host: "h" }],
  ["postgresql://u@", { user: "u" }],
  ["postgresql://u:p@h:5/d", { user: "u", password: "p", host: "h", port: "5", dbname: "d" }],
  ["postgresql:///d", { dbname: "d" }],
  ["postgresql://h/", { host: "h" }],
  ["postgresql://h?port=6", { host: "h", port: "6" }],
  ["postgresql://a:1,b,c:3/d", { host: "a,b,c", port: "1,,3", dbname: "d" }],
  ["postgresql://[::1]:5,[2001:db8::1]/d", { host: "::1,2001:db8::1", port: "5,", dbname: "d" }],
  ["postgresql://%2Fvar%2Frun/d", { host: "/var/run", dbname: "d" }],
  ["postgresql:///d?host=/tmp&user=u%20v", { host: "/tmp", user: "u v", dbname: "d" }],
  ["postgresql://u%40x:p%2F%40@h/%25", { user: "u@x", password: "p/@", host: "h", dbname: "%" }],
  ["postgresql://h?ssl=true", { host: "h", sslmode: "require" }],
  ["postgresql://h/d?host=x&", { host: "x", dbname: "d" }],
  ["postgresql://%C3%A4/d", { host: "ä", dbname: "d" }],
  ["postgresql://u@h1@h2/d", { user: "u", host: "h1@h2", dbname: "d" }],
  ["postgresql:// u @h/d", { user: "u", host: "h", dbname: "d" }],
];
for (const [text, expected] of parsed) {
  test(`${JSON.stringify(text)} is parsed like libpq does`, () => assert.deepEqual(parseOptions(text), expected));
}

const mistakes: readonly (readonly [string, string])[] = [
  ["application_name", 'missing "=" after "application_name" in connection info string'],
  ["host=a port", 'missing "=" after "port" in connection info string'],
  ["host=a b c", 'missing "=" after "***" in connection info string'],
  ["host='a", "unterminated quoted string in connection info string"],
  ["host='a\\'", "unterminated quoted string in connection info string"],
  ["hosts=a", 'invalid connection option "hosts"'],
  ["HOST=a", 'invalid connection option "HOST"'],
  ["=a", 'invalid connection option ""'],
  ["POSTGRESQL://h", 'missing "=" after "***" in connection info string'],
  ["postgresql://h?foo=1", 'invalid URI query parameter: "foo"'],
  ["postgresql://u:p@h?foo=1", 'invalid URI query parameter: "foo"'],
  [
    "postgresql://h?stringtype=1&port=1&tcpKeepAlive=2&foo=3&async_fallback=4",
    'invalid URI query parameters: "stringtype" (remove it), "tcpKeepAlive" (write keepalives=1 or 0), "foo"',
  ],
  ["postgresql://h?password=a&foo=1", 'invalid URI query parameter: "***"'],
  ["postgresql://h?host", 'missing key/value separator "=" in URI query parameter: "host"'],
  ["postgresql://h?host=a=b", 'extra key/value separator "=" in URI query parameter: "host"'],
  ["postgresql://h%zz/d", 'invalid percent-encoded token: "***"'],
  ["postgresql://h%00/d", 'forbidden value %00 in percent-encoded value: "***"'],
  ["postgresql://[]/x", 'IPv6 host address may not be empty in URI: "***"'],
  ["postgresql://[::1]x/d", 'unexpected character "x" at position 19 in URI (expected ":" or "/"): "***"'],
  ["postgresql://u:p@[::1", 'end of string reached when looking for matching "]" in IPv6 host address in URI: "***"'],
  ["postgresql://h h/d", 'unexpected spaces found in "***", use percent-encoded spaces (%20) instead'],
];
for (const [text, message] of mistakes) {
  test(`${text} is rejected: ${message}`, () => assert.equal(refusal(text), message));
}

const secretive = [
  "password=open sesame host=a",
  "password=open sesame",
  "sslpassword=x sesame=1",
  "host='a password=sesame",
  "postgresql://u:sesame%zz@h/d",
  "postgresql://u:ses ame@h/d",
  "postgresql://u:sesame%00@h/d",
  "postgresql://u:sesame/x@h/d",
  "postgresql://u:a@[sesame@h",
  "postgresql://h?password=sesame%zz",
  "postgresql://u:sesame@[::1?password=sesame",
  "dbname='password=open sesame'",
];
for (const text of secretive) {
  test(`a possible password in ${text} is not repeated`, () => {
    assert.doesNotMatch(refusal(text), /ses|ame"/);
  });
}

test("a database name that is a connection string is expanded", () => {
  assert.deepEqual(parseOptions("host=a port=1 user=u dbname='host=b dbname=c' port=2"), {
    host: "b",
    port: "2",
    user: "u",
    dbname: "c",
  });
  assert.deepEqual(parseOptions("dbname=postgresql://h/d"), { host: "h", dbname: "d" });
  assert.deepEqual(parseOptions("dbname='dbname=''a=b'''".replaceAll("''", "\\'")), {
    dbname: "a=b",
  });
});

test("any value survives quoting and percent-encoding", () => {
  const names = Object.entries(keywords).flatMap(([name, { remedy }]) =>
    remedy !== undefined || name === "dbname" ? [] : [name],
  );
  const value = fc.string({ unit: "grapheme", minLength: 1 }).filter((text) => !text.includes("\0"));
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom(...names), value, { minKeys: 1 }), (given) => {
      const pairs = Object.entries(given);
      const quoted = pairs.map(([name, text]) => `${name} = ${quoteValue(text)}`).join(" ");
      assert.deepEqual(parseOptions(quoted), { ...given });
      const bare = pairs.map(([name, text]) => `${name}=${text.replace(/[\s'\\]/g, "\\$&")}`);
      assert.deepEqual(parseOptions(bare.join("\n")), { ...given });
      const encoded = pairs.map(([name, text]) => `${name}=${encodeURIComponent(text)}`);
      assert.deepEqual(parseOptions(`postgresql://?${encoded.join("&")}`), { ...given });
    }),
  );
});

test("any string is parsed or rejected with a ConnectionStringError", () => {
  const piece = fc.oneof(
    fc.constantFrom("host", "port", "=", "'", "\\", " ", "postgresql://", "@", "/", ":", "[", "]"),
    fc.constantFrom("?", "&", "%", "%41", "dbname", "password", ","),
    fc.string(),
  );
  fc.assert(
    fc.property(fc.array(piece), (pieces) => {
      try {
        parseConnectionString(pieces.join(""));
      } catch (error) {
        assert.ok(error instanceof ConnectionStringError, String(error));
      }
    }),
    { numRuns: 2000 },
  );
});
