import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { explainConfiguration, loadConfiguration } from "../../../../src/shared/config/loadConfiguration.js";
import { parseHosts } from "../../../../src/shared/config/listenAddress.js";
import { maskParameters, maskTarget } from "../../../../src/shared/config/maskSecrets.js";
import { findSource } from "../../../../src/shared/config/findSource.js";
import type { Configuration, Entry } from "../../../../src/shared/config/types.js";
import { PgTaskError } from "../../../../src/shared/errors.js";
import { temporaryFolder } from "../../../support/temporaryFolder.js";

const control = "postgres://boss:bosspassword@db.example/main";

const cwd = await temporaryFolder();
const file = join(cwd, "given.json");

async function load(content: unknown, env: Record<string, string> = {}): Promise<Configuration> {
  await writeFile(file, typeof content === "string" ? content : JSON.stringify(content));
  return await loadConfiguration({
    file: "given.json",
    cwd,
    env: { HOME: cwd, DATABASE_URL: control, ...env },
  });
}

async function entry(content: object, env: Record<string, string> = {}): Promise<Entry> {
  const { entries } = await load([content], env);
  assert.equal(entries.length, 1);
  return entries[0] ?? assert.fail();
}

/** Returns the code of the error, and the lines of its message without the name of the file. */
async function refusal(content: unknown, env?: Record<string, string>): Promise<string[]> {
  try {
    await load(content, env);
  } catch (error) {
    if (!(error instanceof PgTaskError)) throw error;
    const lines = error.message.split("\n");
    for (const line of lines) assert.ok(line.startsWith(file), line);
    return [error.code, ...lines.map((line) => line.slice(file.length).replace(/^: /, ""))];
  }
  throw new assert.AssertionError({ message: `accepted ${JSON.stringify(content)}` });
}

const brief = ({ key, target }: Entry): string[] => [key, target.user, target.database];

void test("accepts the array of entries of the original pg_task", async () => {
  const { entries } = await load([
    { data: "database1" },
    { data: "database2", user: "username2" },
    { data: "database3", schema: "schema3" },
    { data: "database4", table: "table4" },
    { data: "database5", sleep: 100 },
    { user: "username6" },
    {},
  ]);
  assert.deepEqual(entries.map(brief), [
    ["db.example:5432/database1/public.task", "database1", "database1"],
    ["db.example:5432/database2/public.task", "username2", "database2"],
    ["db.example:5432/database3/schema3.task", "database3", "database3"],
    ["db.example:5432/database4/public.table4", "database4", "database4"],
    ["db.example:5432/database5/public.task", "database5", "database5"],
    ["db.example:5432/username6/public.task", "username6", "username6"],
    ["db.example:5432/postgres/public.task", "postgres", "postgres"],
  ]);
  assert.deepEqual(entries[4]?.fixed, { sleep: 100 });
});

void test("without entries, serves the connection's own database and user", async () => {
  for (const content of [[], {}, { "pg_task.json": [] }]) {
    const { entries } = await load(content);
    assert.deepEqual(entries.map(brief), [["db.example:5432/main/public.task", "boss", "main"]]);
    assert.equal(entries[0]?.target.password, "bosspassword");
    assert.equal(entries[0]?.ownPassword, false);
  }
});

void test("parameters come from the entry, then the file, then the defaults", async () => {
  const { parameters, entries } = await load({
    "pg_task.output": "1MB",
    "pg_task.timeout": "5 min",
    "pg_work.idle": 7,
    "pg_task.table": "jobs",
    "pg_task.json": [
      { data: "a", "pg_task.timeout": "1 min", "pg_task.sleep": 5 },
      { data: "b", reset: "2 hours", run: 3, table: "own" },
    ],
  });
  assert.equal(parameters["pg_task.output"], 1024 * 1024);
  assert.equal(parameters["pg_task.idle"], 7);
  const [a, b] = entries;
  assert.equal(a?.parameters["pg_task.timeout"], "1 min");
  assert.equal(a?.parameters["pg_task.sleep"], 5);
  assert.deepEqual([a?.table, a?.fixed], ["jobs", {}]);
  assert.equal(b?.parameters["pg_task.timeout"], "5 min");
  assert.equal(b?.parameters["pg_task.reset"], "2 hours");
  assert.deepEqual([b?.table, b?.fixed], ["own", { reset: "2 hours", run: 3, table: "own" }]);
  assert.equal(b?.parameters["pg_task.table"], "own");
});

void test("another user does not inherit the control URL's password", async () => {
  assert.equal((await entry({ data: "other" })).target.password, undefined);
  assert.equal((await entry({ data: "other", user: "boss" })).target.password, "bosspassword");
  assert.equal((await entry({ data: "other" }, { PGPASSWORD: "env" })).target.password, "env");
  assert.equal((await entry({ data: "other" }, { PGPASSWORD: "env" })).ownPassword, false);
  const elsewhere = await entry({ url: "postgres://boss@elsewhere/main" });
  assert.equal(elsewhere.target.password, undefined);
  const query = await load([{ data: "other" }], { DATABASE_URL: "postgres://h?password=secret" });
  assert.equal(query.entries[0]?.target.password, undefined);
});

void test("an entry's password is literal, from a variable or from its URL", async () => {
  const text = await entry({ data: "d", password: "p" });
  const variable = await entry({ data: "d", password: { env: "SECRET" } }, { SECRET: "s" });
  const url = await entry({ url: "postgres://d:u@h2:1/x" });
  for (const [given, password] of [
    [text, "p"],
    [variable, "s"],
    [url, "u"],
  ] as const) {
    assert.deepEqual([given.target.password, given.ownPassword], [password, true]);
  }
  assert.deepEqual(brief(url), ["h2:1/x/public.task", "d", "x"]);
});

void test("an entry with its own URL inherits nothing from the control connection", async () => {
  const { target } = await entry(
    { url: "postgres://h2", data: "d" },
    { DATABASE_URL: "postgres://boss:p@h:9/main?sslmode=disable&connect_timeout=5" },
  );
  const { passwordFile, ...others } = target;
  assert.ok(passwordFile?.endsWith("/.pgpass"));
  assert.deepEqual(others, {
    host: "h2",
    port: 5432,
    database: "d",
    user: "d",
    sslmode: "prefer",
    connectTimeoutMs: 10_000,
  });
});

void test("names with dots and slashes yield distinct keys", async () => {
  const { entries } = await load([
    { data: "d", schema: "a.b", table: "c" },
    { data: "d", schema: "a", table: "b.c" },
    { data: "d/a", schema: "b", table: "c" },
  ]);
  assert.equal(new Set(entries.map(({ key }) => key)).size, 3);
});

void test("a token that is short or cannot be sent is refused without being shown", async () => {
  const expected = "expected a token of at least 16 visible ASCII characters";
  for (const name of ["pg_http.token", "pg_http.readonly"]) {
    for (const token of ["hunter2", "hunter2-0123456", "hunter2 012345678", "hunter2-é-012345678"]) {
      const written = await refusal({ [name]: token });
      assert.equal(written[0], "CONFIG_INVALID");
      assert.ok(written[1]?.startsWith(`${name}: ${expected}`), written[1]);
      assert.ok(written[1]?.endsWith(`, got a string (***) of ${token.length} characters`), written[1]);
      const [, fromVariable = ""] = await refusal({ [name]: { env: "TOKEN" } }, { TOKEN: token });
      const problem = token.length < 16 ? `one of ${token.length} characters` : "one with spaces or other characters";
      assert.ok(fromVariable.startsWith(`${name}: ${expected}, got ${problem}: a command such as`), fromVariable);
      assert.doesNotMatch(JSON.stringify([written, fromVariable]), /hunter2/);
    }
    await load({ [name]: "0123456789abcdef" });
  }
});

void test("the read-only token is another one, and is masked as well", async () => {
  const token = "0123456789abcdef";
  assert.deepEqual(await refusal({ "pg_http.token": token, "pg_http.readonly": token }), [
    "CONFIG_INVALID",
    "pg_http.readonly: expected another token than pg_http.token, got the same",
  ]);
  const configuration = await load({ "pg_http.token": token, "pg_http.readonly": `${token}-readonly` });
  assert.doesNotMatch(JSON.stringify(configuration.entries), new RegExp(token));
  assert.doesNotMatch(JSON.stringify(maskParameters(configuration.parameters)), new RegExp(token));
});

void test("host names are given without ports and with commas between them", async () => {
  for (const hosts of ["", "tasks.example.com", "a,b-c.example,10.0.0.5,[2001:db8::1]"]) {
    await load({ "pg_http.hosts": hosts });
  }
  for (const hosts of ["a:80", "a, b", ",a", "a,", "http://a", "2001:db8::1", "a/b", "u@a"]) {
    assert.match((await refusal({ "pg_http.hosts": hosts }))[1] ?? "", /^pg_http\.hosts: expected host names/, hosts);
  }
  assert.deepEqual(parseHosts("Tasks.Example.COM,[2001:DB8::1]"), ["tasks.example.com", "2001:db8::1"]);
});

void test("each mistake is reported with its path, what is allowed and what was given", async () => {
  const lines = await refusal({
    "pg_task.slep": 1,
    "pg_task.active": "0",
    "pg_task.timeout": 5000,
    "pg_task.quote": "é",
    "pg_task.output": "64mb",
    "pg_task.delete": "yes",
    "pg_conf.log": "loud",
    "pg_task.id": 1,
    "pg_http.listen": "80",
    "pg_http.token": { env: 1 },
    "pg_nothing.at_all": 1,
    "pg_task.json": [
      { data: "a", slepe: 1 },
      { data: "", sleep: 0, reset: "soon", create: 1, run: 1.5 },
      { user: "x".repeat(64), "pg_task.user": "y", "pg_conf.max": 3, "pg_task.max": 2 ** 31 },
      7,
    ],
  });
  assert.equal(lines[0], "CONFIG_INVALID");
  const expected = [
    /^pg_task\.slep: unknown key, expected a known key, perhaps "pg_task.sleep"$/,
    /^pg_task\.active: expected an interval above 0 .*, got "0"$/,
    /^pg_task\.timeout: expected an interval not below 0 .*, got 5000$/,
    /^pg_task\.quote: expected one ASCII character, or an empty string for none, got "é"$/,
    /^pg_task\.output: expected a whole number of bytes .*, got "64mb"$/,
    /^pg_task\.delete: expected true or false, got "yes"$/,
    /^pg_conf\.log: expected one of "trace", .*, got "loud"$/,
    /^pg_task\.id: unknown key, pg_task\.id is the running task's id/,
    /^pg_http\.listen: expected a string "HOST:PORT" or ":PORT", .*, got "80"$/,
    /^pg_http\.token: expected a token of at least 16 visible ASCII characters, or \{"env": "NAME"\} .*, got an object$/,
    /^pg_nothing\.at_all: unknown key, expected one of url, pg_task\.json, /,
    /^pg_task\.json\[0\]\.slepe: unknown key, expected a known key, perhaps "sleep"$/,
    /^pg_task\.json\[1\]\.data: expected a name of 1 to 63 bytes, got ""$/,
    /^pg_task\.json\[1\]\.sleep: expected a whole number of ms from 1 to 2147483647, got 0$/,
    /^pg_task\.json\[1\]\.reset: expected an interval above 0 .*, got "soon"$/,
    /^pg_task\.json\[1\]\.create: expected true or false, got 1$/,
    /^pg_task\.json\[1\]\.run: expected a whole number from 1 to 2147483647, got 1\.5$/,
    /^pg_task\.json\[2\]\.user: expected a name of 1 to 63 bytes, got "x{60}…"$/,
    /^pg_task\.json\[2\]\["pg_task\.user"\]: unknown key, expected "user" in an entry/,
    /^pg_task\.json\[2\]\["pg_conf\.max"\]: unknown key, "pg_conf\.max" belongs at the top level, /,
    /^pg_task\.json\[2\]\["pg_task\.max"\]: expected a whole number from -2147483648 to 2147483647, got 2147483648$/,
    /^pg_task\.json\[3\]: expected an entry, an object such as \{"data": "name"\}, got 7$/,
  ];
  for (const line of expected) {
    assert.ok(
      lines.some((it) => line.test(it)),
      `${line} in\n${lines.join("\n")}`,
    );
  }
  assert.equal(lines.length, expected.length + 1);
  assert.match((await refusal([{ sleep: 0 }]))[1] ?? "", /^\[0\]\.sleep: expected/);
  assert.match((await refusal("5"))[1] ?? "", /^expected an object with parameters, or an array/);
});

void test("a misplaced key, or one without its prefix, is reported with a suggestion", async () => {
  const hints: readonly [unknown, string][] = [
    [{ sleep: 100 }, 'sleep: unknown key, expected a known key, perhaps "pg_task.sleep"'],
    [{ grace: 100 }, 'grace: unknown key, expected a known key, perhaps "pg_conf.grace"'],
    [
      [{ data: "a", spi: true }],
      "[0].spi: unknown key, not supported: tasks run over connections, not by SPI inside the server; remove it",
    ],
    [
      { "pg_task.spi": true },
      "pg_task.spi: unknown key, not supported: tasks run over connections, not by SPI inside the server; remove it",
    ],
    [
      { "pg_task.oid": 1 },
      "pg_task.oid: unknown key, not supported: name the table by pg_task.schema and pg_task.table",
    ],
    [[{ database: "shop" }], '[0].database: unknown key, expected a known key, perhaps "data"'],
    [[{ data: "a", username: "u" }], '[0].username: unknown key, expected a known key, perhaps "user"'],
    [[{ data: "a", timeout: 5 }], '[0].timeout: unknown key, expected a known key, perhaps "pg_task.timeout"'],
    [
      [{ "pg_conf.max": 1 }],
      '[0]["pg_conf.max"]: unknown key, "pg_conf.max" belongs at the top level, next to "pg_task.json", not in an entry',
    ],
  ];
  for (const [content, hint] of hints) {
    assert.deepEqual(await refusal(content), ["CONFIG_INVALID", hint]);
  }
});

void test("keys of Object.prototype are rejected as unknown", async () => {
  for (const key of ["__proto__", "constructor", "toString"]) {
    for (const [content, path] of [
      [`{"${key}": {"url": "x"}}`, key],
      [`[{"${key}": {"data": "x"}}]`, `[0].${key}`],
    ] as const) {
      const [code, line = "", more] = await refusal(content);
      assert.deepEqual([code, more], ["CONFIG_INVALID", undefined]);
      assert.ok(line.startsWith(`${path}: unknown key, expected one of `), line);
    }
  }
});

void test("a file that is not UTF-8 is rejected with the line", async () => {
  await writeFile(file, Buffer.from('[{"data": "a"},\n{"data": "caf\u00e9"}]', "latin1"));
  const given = { file: "given.json", cwd, env: { HOME: cwd, DATABASE_URL: control } };
  await assert.rejects(loadConfiguration(given), {
    code: "CONFIG_SYNTAX",
    message: `${file}:2: expected UTF-8, got other bytes: save the file as UTF-8`,
  });
});

void test("name lengths count bytes, and text may not contain a zero byte", async () => {
  assert.match((await refusal([{ data: "é".repeat(32) }]))[1] ?? "", /63 bytes/);
  assert.equal((await entry({ data: "é".repeat(31) })).target.user, "é".repeat(31));
  assert.match((await refusal({ "pg_task.null": "\0" }))[1] ?? "", /expected a string/);
});

void test("duplicate keys, aliases and entries are rejected", async () => {
  assert.deepEqual(await refusal({ "pg_task.idle": 1, "pg_work.idle": 1 }), [
    "CONFIG_INVALID",
    'expected one of "pg_task.idle" and "pg_work.idle", which are the same, got both',
  ]);
  const lines = await refusal({
    "pg_task.json": [
      { data: "a" },
      { user: "b", data: "a" },
      { url: "postgres://DB.example/a" },
      { data: "c", sleep: 1, "pg_task.sleep": 2 },
      { data: "c", url: "postgres://q:w@h/d", user: "u", password: "p" },
    ],
  });
  assert.deepEqual(lines, [
    "CONFIG_INVALID",
    'pg_task.json[1]: expected each task table once, got db.example:5432/a/public.task as in pg_task.json[0]: remove one of the two, or give it another "schema" or "table"',
    'pg_task.json[2]: expected each task table once, got db.example:5432/a/public.task as in pg_task.json[1]: remove one of the two, or give it another "schema" or "table"',
    'pg_task.json[3]: expected one of "sleep" and "pg_task.sleep" in one entry, got both',
    'pg_task.json[4].data: expected the same as in the entry\'s url, "d", got "c"',
    'pg_task.json[4].user: expected the same as in the entry\'s url, "q", got "u"',
    "pg_task.json[4].password: expected no password in addition to the one in the entry's url",
  ]);
});

void test("no message contains a password", async () => {
  const contents = [
    [{ data: "a", password: "hunter2\0" }],
    [{ data: "a", password: { env: "A", value: "hunter2" } }],
    [{ data: "a", password: ["hunter2"] }],
    [{ data: "a", pasword: "hunter2" }],
    [{ url: "host=h password=hunter2" }],
    [{ url: "postgres://u:hunter2@h/p/q" }],
    ["postgres://u:hunter2@h/d"],
    ["host=h password=hunter2"],
    { url: "mysql://u:hunter2@h/d" },
    { url: "postgres://u:hunter2/x@h/d" },
    { "pg_conf.max": "postgres://u:hunter2@h/d" },
    '{"url": "postgres://u:p@h", "password": hunter2}',
  ];
  for (const content of contents) {
    assert.doesNotMatch((await refusal(content)).join("\n"), /hunter2/);
  }
});

void test("lazy secrets: a missing password concerns only its entry, and tokens are left out", async () => {
  const entries = [{ data: "a", password: { env: "SET" } }, { data: "b", password: { env: "NOT_SET" } }, { data: "c" }];
  const http = {
    "pg_http.listen": "0.0.0.0:80",
    "pg_http.token": { env: "NOT_SET" },
    "pg_http.readonly": "0123456789abcdef",
  };
  await writeFile(file, JSON.stringify({ ...http, "pg_task.json": entries }));
  const options = { file: "given.json", cwd, env: { HOME: cwd, DATABASE_URL: control, SET: "secret" } };
  const configuration = await loadConfiguration({ ...options, lazySecrets: true });
  assert.deepEqual(
    configuration.entries.map(({ target, missingPassword }) => [target.database, target.password, missingPassword]),
    [
      ["a", "secret", undefined],
      [
        "b",
        undefined,
        `${file}: pg_task.json[1].password: expected the environment variable NOT_SET to hold the password, got no such variable`,
      ],
      ["c", undefined, undefined],
    ],
  );
  const { "pg_http.token": token, "pg_http.readonly": readOnly } = configuration.parameters;
  assert.deepEqual([token, readOnly], ["", ""]);
  await assert.rejects(loadConfiguration(options), { code: "CONFIG_INVALID" });
});

void test("a wrong DATABASE_URL or PG* variable is named instead of the file", async () => {
  await assert.rejects(load([], { DATABASE_URL: "mysql://h" }), {
    code: "CONFIG_INVALID",
    message: /^DATABASE_URL: expected a URL like postgresql:/,
  });
  await assert.rejects(load([], { PGPORT: "x" }), { message: /^PGPORT: invalid integer value/ });
});

void test("invalid JSON is rejected with line and column", async () => {
  const [code, line] = await refusal('[\n  {"data": "a",}\n]');
  assert.equal(code, "CONFIG_SYNTAX");
  assert.equal(line, ":2:16: not JSON: expected a key in double quotes, got a trailing comma: remove it");
  assert.deepEqual(await refusal(""), ["CONFIG_SYNTAX", ":1:1: not JSON: expected a value"]);
  assert.equal((await load("\u{feff}[]")).entries.length, 1);
});

/** Asserts that loading the file fails for this reason. */
async function refusesFile(name: string, reason: RegExp): Promise<void> {
  await assert.rejects(loadConfiguration({ file: name, cwd, env: {} }), (error: unknown) => {
    assert.ok(error instanceof PgTaskError);
    assert.equal(error.code, "CONFIG_FILE_UNREADABLE");
    assert.ok(error.message.startsWith(join(cwd, name)));
    assert.match(error.message, reason);
    return error.exitCode === 2;
  });
}

void test("an unreadable file is named with the reason", async () => {
  await refusesFile("missing.json", /no such file/);
  await refusesFile("", /is a directory/);
});

void test("the file is the one given, then pg_task.json; having no configuration at all is detected", async () => {
  const directory = await temporaryFolder();
  const from = async (env: Record<string, string>, named?: string) =>
    await findSource({ file: named, cwd: directory, env });
  assert.deepEqual(await from({}), { file: null, environment: null, nothing: true });
  assert.deepEqual(await from({ DATABASE_URL: "", PGHOST: "", PGDATA: "/d" }), await from({}));
  assert.equal((await from({ PGHOST: "h" })).environment, "PG* variables");
  assert.equal((await from({ PGHOST: "h", DATABASE_URL: control })).environment, "DATABASE_URL");
  assert.equal((await from({}, "other.json")).file, join(directory, "other.json"));
  await writeFile(join(directory, "pg_task.json"), "[]");
  const found = { file: join(directory, "pg_task.json"), environment: null, nothing: false };
  assert.deepEqual(await from({}), found);
});

/** Returns the host of the control connection, and where it is configured. */
async function controlOf(
  options: { control?: string; file?: string },
  env: Record<string, string> = {},
): Promise<string[]> {
  const { configuration, controlFrom } = await explainConfiguration({ cwd, env, ...options });
  return [configuration.control.host, controlFrom];
}

void test("the control connection comes from the override, then the file, then the environment", async () => {
  await writeFile(file, JSON.stringify({ url: "postgres://u@infile/d" }));
  const env = { DATABASE_URL: control, PGHOST: "pghost" };
  assert.deepEqual(await controlOf({ control: "postgres://u@over/d" }, env), ["over", "the embedded server"]);
  await assert.rejects(controlOf({ file, control: "postgres://u@over/d" }, env), {
    code: "CONFIG_CONFLICT",
  });
  assert.deepEqual(await controlOf({ file }, env), ["infile", "url in the file"]);
  assert.deepEqual(await controlOf({}, env), ["db.example", "DATABASE_URL"]);
  assert.deepEqual(await controlOf({}, { PGHOST: "pghost" }), ["pghost", "PG* variables"]);
  assert.equal((await controlOf({}))[1], "libpq's defaults");
});

void test("masking a target changes nothing but its password", async () => {
  const { control: own } = await load([{ data: "a" }]);
  assert.equal(own.password, "bosspassword");
  assert.deepEqual(maskTarget(own), { ...own, password: "***" });
});

void test("the token may come from a variable, and reaches neither managers nor output", async () => {
  const configuration = await load(
    { "pg_http.listen": ":0", "pg_http.token": { env: "TOKEN" } },
    { TOKEN: "open-sesame-0123" },
  );
  assert.equal(configuration.parameters["pg_http.token"], "open-sesame-0123");
  assert.doesNotMatch(JSON.stringify(configuration.entries), /sesame/);
  assert.doesNotMatch(JSON.stringify(maskParameters(configuration.parameters)), /sesame/);
  assert.deepEqual(await refusal({ "pg_http.token": { env: "TOKEN" } }), [
    "CONFIG_INVALID",
    "pg_http.token: expected the environment variable TOKEN to hold the token, got no such variable",
  ]);
});

void test("listening beyond loopback requires a token", async () => {
  for (const listen of [":80", "0.0.0.0:80", "[::]:80", "db.example.com:80", "127.0.0.1.nip.io:80"]) {
    const [code, line = ""] = await refusal({ "pg_http.listen": listen });
    assert.equal(code, "CONFIG_INVALID");
    assert.match(line, /^pg_http\.token: expected a token, since pg_http\.listen is /, listen);
    await load({ "pg_http.listen": listen, "pg_http.token": "0123456789abcdef" });
    await load({ "pg_http.listen": listen, "pg_http.readonly": "0123456789abcdef" });
  }
  for (const listen of ["", "127.0.0.1:80", "127.3.2.1:0", "localhost:65535", "[::1]:80"]) {
    await load({ "pg_http.listen": listen });
  }
  for (const listen of ["80", ":65536", "::1:80", "a b:80", "http://a:80"]) {
    assert.match((await refusal({ "pg_http.listen": listen }))[1] ?? "", /^pg_http\.listen: expected/);
  }
});

void test("refuses shares that cannot be, and weights of none", async () => {
  const shared = { "pg_task.share": "/", "pg_task.weights": { alice: 2 } };
  const { entries } = await load({ "pg_task.json": [{ data: "shop", ...shared }] });
  assert.deepEqual(entries[0]?.parameters["pg_task.weights"], { alice: 2 });
  for (const [content, pattern] of [
    [{ "pg_task.share": "role" }, /^pg_task\.share: "role" is not possible yet, in the entry /],
    [{ "pg_task.weights": { a: 1 } }, /^pg_task\.weights: expected pg_task\.share, too, for the entry /],
    [
      { "pg_task.share": "/", "pg_task.weights": { a: 0 } },
      /^pg_task\.weights\.a: expected an object of shares with numbers from 0\.001 to 1000, .*, got 0$/,
    ],
    [
      { "pg_task.share": "/", "pg_task.weights": [] },
      /^pg_task\.weights: expected an object of shares .*, got an array$/,
    ],
  ] as const) {
    const [code, line = ""] = await refusal(content);
    assert.equal(code, "CONFIG_INVALID");
    assert.match(line, pattern);
  }
});
