import assert from "node:assert/strict";
import { chmod, mkdir, rm, writeFile } from "node:fs/promises";
import { userInfo } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import * as fc from "fast-check";
import {
  resolveTarget,
  sharedContext,
  parseTargetUrl,
} from "../../../../../src/shared/postgres/target/resolveTarget.js";
import { findPassword } from "../../../../../src/shared/postgres/target/passwordFile.js";
import { describeTarget, type ConnectionTarget } from "../../../../../src/shared/postgres/target/target.js";
import { maskTarget } from "../../../../../src/shared/config/maskSecrets.js";
import { keywords, refusedKeywords } from "../../../../../src/shared/postgres/connectionString/keywords.js";
import { noOptions } from "../../../../../src/shared/postgres/connectionString/parse.js";
import { ConnectionStringError } from "../../../../../src/shared/postgres/errors.js";
import { temporaryFolder } from "../../../../support/temporaryFolder.js";

const home = await temporaryFolder();

const warnings: string[] = [];

/** Resolves a URL, or the target without a URL, with only these environment variables. */
async function resolve(url: string | null, env: Record<string, string> = {}): Promise<ConnectionTarget> {
  return await resolveTarget(url === null ? noOptions : parseTargetUrl(url), {
    env: { HOME: home, ...env },
    warn: (message) => warnings.push(message),
  });
}

function reason(url: string): string {
  try {
    parseTargetUrl(url);
  } catch (error) {
    if (error instanceof ConnectionStringError) return error.message;
    throw error;
  }
  throw new assert.AssertionError({ message: `accepted ${url}` });
}

const text = fc.string({ unit: "grapheme", minLength: 1 }).filter((it) => !it.includes("\0"));
const host = fc.oneof(
  fc.domain(),
  fc.ipV4(),
  fc.ipV6(),
  fc.constantFrom("/var/run/postgresql", "/tmp/a socket:folder", "localhost"),
);

void test("any name and password survives the URL encoding", () => {
  const port = fc.integer({ min: 1, max: 65_535 });
  const parts = fc.record({ user: text, password: text, host, port, database: text }, { noNullPrototype: true });
  fc.assert(
    fc.property(parts, fc.constantFrom("postgres", "postgresql"), (given, scheme) => {
      const [user, password, database] = [given.user, given.password, given.database].map(encodeURIComponent);
      const server = given.host.includes(":") && !given.host.startsWith("/");
      const encoded = server ? `[${given.host}]` : encodeURIComponent(given.host);
      const inAuthority = `${scheme}://${user}:${password}@${encoded}:${given.port}/${database}`;
      const { database: dbname, port: number, ...rest } = given;
      const expected = { ...rest, dbname, port: String(number) };
      assert.deepEqual(Object.fromEntries(parseTargetUrl(inAuthority)), expected);
      const inQuery = `${scheme}://?user=${user}&password=${password}&host=${encodeURIComponent(given.host)}&port=${given.port}&dbname=${database}`;
      assert.deepEqual(Object.fromEntries(parseTargetUrl(inQuery)), expected);
    }),
  );
});

void test("values that are not supported are named, with those that are", () => {
  const wrong = {
    "target_session_attrs=standby": 'invalid target_session_attrs value: "standby" (expected any, read-write, primary)',
    "load_balance_hosts=x": 'invalid load_balance_hosts value: "x" (expected disable, random)',
    "port=abc": 'invalid integer value "***" for connection option "port"',
    "port=0": 'invalid port number: "0" (expected 1 to 65535)',
    "sslmode=no-verify":
      'invalid sslmode value: "no-verify" (expected disable, allow, prefer, require, verify-ca, verify-full)',
    "connect_timeout=1s": 'invalid integer value "1s" for connection option "connect_timeout"',
    "keepalives=x": 'invalid integer value "x" for connection option "keepalives"',
    "keepalives_count=x": 'invalid integer value "x" for connection option "keepalives_count"',
    "channel_binding=x": 'invalid channel_binding value: "x" (expected disable, prefer, require)',
    "require_auth=x": 'invalid require_auth value: "x"',
    "require_auth=md5,!none": 'negative require_auth method "!none" cannot be mixed with non-negative methods',
    "ssl_min_protocol_version=x":
      'invalid ssl_min_protocol_version value: "x" (expected TLSv1, TLSv1.1, TLSv1.2, TLSv1.3)',
    "ssl_min_protocol_version=TLSv1.3&ssl_max_protocol_version=TLSv1.2": "invalid SSL protocol version range",
    "sslnegotiation=direct":
      'weak sslmode "prefer" may not be used with sslnegotiation=direct (use "require", "verify-ca", or "verify-full")',
    "gssencmode=require": 'gssencmode value "require" invalid when GSSAPI support is not compiled in',
    "min_protocol_version=3.2": 'min_protocol_version "3.2" is not supported',
    "sslcertmode=require": 'sslcertmode "require" is not supported',
    sslmode: 'missing key/value separator "=" in URI query parameter: "sslmode"',
    "toString=1": 'invalid URI query parameter: "toString"',
  };
  for (const [parameters, message] of Object.entries(wrong)) {
    assert.equal(reason(`postgres://h/d?${parameters}`), message);
  }
});

void test("parameters of other programs are named with what to do instead", () => {
  const remedies = {
    "schema=app": /"schema" \(remove it, and give the task table's schema in its entry, or as pg_task.schema\)/,
    "currentSchema=app": /"currentSchema" \(.* pg_task.schema\)/,
    "sslmode=require&connection_limit=5": /"connection_limit" \(remove it: .* connection pool/,
    "pool_timeout=0": /"pool_timeout" \(remove it/,
    "pgbouncer=true": /"pgbouncer" \(remove it, and give the server's own address, not a pooler's\)/,
    "supa=base-pooler.x": /"supa" \(.* not a pooler's\)/,
    "workaround=supabase-pooler.vercel": /"workaround" \(.* not a pooler's\)/,
    "sslaccept=strict": /"sslaccept" \(write sslmode=verify-full instead of strict/,
    "ssl=true&sslfactory=org.postgresql.ssl.NonValidatingFactory": /"sslfactory" \(remove it, and write sslmode/,
    "ssl=require": /"ssl" \(remove it, and write sslmode/,
    "prepared_statement_cache_size=0": /"prepared_statement_cache_size" \(remove it/,
    "statement_timeout=1000": /"statement_timeout" \(remove it, and limit tasks with pg_task.timeout\)/,
    "targetServerType=primary": /"targetServerType" \(write target_session_attrs=primary\)/,
  };
  for (const [parameters, message] of Object.entries(remedies)) {
    assert.match(reason(`postgres://u:p@h/d?${parameters}`), message);
  }
  // After what may be the rest of a password, nothing is taken for a parameter's name.
  assert.doesNotMatch(reason("postgres://u:p@ss?schema=x@h/d"), /schema/);
});

void test("every parameter of libpq is read, accepted without effect, or refused with what to do", async () => {
  const read: Record<string, Partial<ConnectionTarget>> = {
    "hostaddr=10.0.0.1": { address: "10.0.0.1" },
    "options=-c%20work_mem%3D8MB": { options: "-c work_mem=8MB" },
    "channel_binding=require": { channelBinding: "require" },
    "require_auth=scram-sha-256": { authMethods: new Set(["scram-sha-256"] as const) },
    "keepalives=0": { keepAliveMs: null },
    "keepalives_idle=7": { keepAliveMs: 7000 },
    "sslmode=require&sslnegotiation=direct": { sslmode: "require", tls: { direct: true } },
    "sslcrl=/c": { tls: { crl: "/c" } },
    "sslcert=/c&sslkey=/k&sslpassword=p": { sslcert: "/c", sslkey: "/k", tls: { keyPassword: "p" } },
    "sslcert=/c&sslcertmode=disable": {},
    "sslsni=0": { tls: { sni: false } },
    "ssl_min_protocol_version=TLSv1.3": { tls: { minVersion: "TLSv1.3" } },
    "ssl_max_protocol_version=TLSv1.2": { tls: { maxVersion: "TLSv1.2" } },
    "passfile=/p": { passwordFile: "/p" },
  };
  const plain = await resolve("postgres://u@h/d");
  for (const [parameters, expected] of Object.entries(read)) {
    assert.deepEqual(await resolve(`postgres://u@h/d?${parameters}`), { ...plain, ...expected }, parameters);
  }
  const harmless =
    "application_name=x&fallback_application_name=x&client_encoding=auto&keepalives_interval=1&keepalives_count=1&" +
    "tcp_user_timeout=1&gssencmode=prefer&krbsrvname=x&gsslib=gssapi&gssdelegation=0&sslcompression=0&" +
    "min_protocol_version=3.0&max_protocol_version=latest";
  assert.deepEqual(await resolve(`postgres://u@h/d?${harmless}`), plain);
  const refused = refusedKeywords.map((name) => [name, reason(`postgres://u@h/d?${name}=x`)] as const);
  for (const [name, message] of refused) {
    assert.match(message, new RegExp(`^"${name}" is not supported: (remove|give|put|connect) `));
  }
  const tested = [...Object.keys(read), harmless].flatMap((each) => [...new URLSearchParams(each).keys()]);
  const others = ["host", "port", "dbname", "user", "password", "sslmode", "sslrootcert", "connect_timeout"];
  const known = [...tested, ...refusedKeywords, ...others, "target_session_attrs", "load_balance_hosts"];
  assert.deepEqual([...new Set(known)].toSorted(), Object.keys(keywords).toSorted());
});

void test("everything unspecified comes from libpq's defaults", async () => {
  const user = userInfo().username;
  assert.deepEqual(await resolve(null), {
    host: process.platform === "linux" ? "/var/run/postgresql" : "/tmp",
    port: 5432,
    database: user,
    user,
    sslmode: "prefer",
    connectTimeoutMs: 10_000,
    passwordFile: join(home, ".pgpass"),
  });
  const empty = { PGHOST: "", PGPORT: "", PGUSER: "", PGDATABASE: "" };
  assert.deepEqual(await resolve("postgres://", empty), await resolve(null));
});

void test("variables fill in what the URL omits, and nothing else", async () => {
  const env = {
    PGHOST: "envhost",
    PGPORT: "6000",
    PGUSER: "envuser",
    PGDATABASE: "envdb",
    PGPASSWORD: "envpassword",
    PGSSLMODE: "disable",
    PGSSLROOTCERT: "/root.crt",
    PGSSLCERT: "/client.crt",
    PGSSLKEY: "/client.key",
    PGCONNECT_TIMEOUT: "3",
  };
  const fromEnv = {
    host: "envhost",
    port: 6000,
    database: "envdb",
    user: "envuser",
    password: "envpassword",
    sslmode: "disable",
    sslrootcert: "/root.crt",
    sslcert: "/client.crt",
    sslkey: "/client.key",
    connectTimeoutMs: 3000,
    othersPasswordFile: join(home, ".pgpass"),
  };
  assert.deepEqual(await resolve(null, env), fromEnv);
  assert.deepEqual(await resolve("postgres://u@h/", env), { ...fromEnv, user: "u", host: "h" });
  const whole = "postgres://u:p@[::1]:1/d?sslmode=verify-full&sslrootcert=/r&connect_timeout=0";
  assert.deepEqual(await resolve(whole, env), {
    ...fromEnv,
    host: "::1",
    port: 1,
    database: "d",
    user: "u",
    password: "p",
    sslmode: "verify-full",
    sslrootcert: "/r",
    connectTimeoutMs: 0,
  });
  assert.equal((await resolve("postgres://u@", { PGPASSWORD: "x" })).database, "u");
});

void test("several hosts are combined with their ports as in libpq", async () => {
  const { host: _, port: __, ...rest } = await resolve("postgres://h/d");
  const a = { host: "a", port: 1 };
  const b = { host: "b", port: 2 };
  const writable = { otherServers: [b], sessionAttributes: "read-write" };
  assert.deepEqual(await resolve("postgres://a:1,b:2/d"), { ...a, ...rest, ...writable });
  const given = "postgres://a,b:2/d?target_session_attrs=primary&load_balance_hosts=random";
  assert.deepEqual(await resolve(given), {
    host: "a",
    port: 5432,
    ...rest,
    otherServers: [b],
    sessionAttributes: "primary",
    loadBalance: true,
  });
  const env = { PGHOST: "a,b", PGPORT: "1,2", PGTARGETSESSIONATTRS: "any", PGLOADBALANCEHOSTS: "disable" };
  const fromEnv = { ...a, ...rest, otherServers: [b], sessionAttributes: "any" };
  assert.deepEqual(await resolve(null, { ...env, PGDATABASE: "d" }), fromEnv);
  const atPort = { port: 7, otherServers: [{ ...b, port: 7 }] };
  assert.deepEqual(await resolve("postgres://:7/d", env), { ...fromEnv, ...atPort });
  assert.deepEqual(await resolve("postgres://a/d?target_session_attrs=read-write"), {
    host: "a",
    port: 5432,
    ...rest,
    sessionAttributes: "read-write",
  });
  await assert.rejects(resolve("postgres://?host=a,b,c&port=1,2"), /could not match 2 port numbers to 3 hosts/);
  await assert.rejects(resolve(null, { PGTARGETSESSIONATTRS: "standby" }), /PGTARGETSESSIONATTRS: invalid/);
  await assert.rejects(resolve(null, { PGLOADBALANCEHOSTS: "on" }), /PGLOADBALANCEHOSTS: invalid/);
});

void test("a URL with several hosts names all of them when it is shown, without passwords", async () => {
  const shown = describeTarget(await resolve("postgres://u:secret@a:1,[::1]:2/d?target_session_attrs=primary"));
  assert.equal(shown, "postgresql://u@a:1,[::1]:2/d?target_session_attrs=primary");
  const sockets = describeTarget(await resolve("postgres://u@/d?host=/a,/b&port=1,2"));
  assert.equal(sockets, "postgresql://u@/d?host=/a,/b&port=1,2&target_session_attrs=read-write");
  assert.equal(describeTarget(await resolve("postgres://u@a/d")), "postgresql://u@a:5432/d");
});

void test("each of several servers has its own password in a password file", async () => {
  const path = join(home, "each");
  await writeFile(path, "a:*:*:*:first\nb:2:*:*:second\nc:9:*:*:never\n", { mode: 0o600 });
  const target = await resolve("postgres://u@a,b:2,c/d", { PGPASSFILE: path });
  assert.deepEqual(
    [target.password, target.otherServers],
    [
      "first",
      [
        { host: "b", port: 2, password: "second" },
        { host: "c", port: 5432 },
      ],
    ],
  );
  assert.doesNotMatch(JSON.stringify(maskTarget(target)), /first|second/);
});

void test("PGHOSTADDR is the address of PGHOST, unless a URL names the host", async () => {
  const env = { PGHOST: "name", PGHOSTADDR: "10.0.0.1", PGSSLMODE: "verify-full" };
  const named = await resolve(null, env);
  assert.deepEqual([named.host, named.address], ["name", "10.0.0.1"]);
  const elsewhere = await resolve("postgres://other", env);
  assert.deepEqual([elsewhere.host, elsewhere.address], ["other", undefined]);
  const alone = await resolve(null, { PGHOSTADDR: "10.0.0.1" });
  assert.deepEqual([alone.host, alone.address], ["10.0.0.1", "10.0.0.1"]);
  await assert.rejects(resolve(null, { PGHOSTADDR: "name" }), /PGHOSTADDR: could not parse network address "name"/);
});

void test("an invalid variable is named", async () => {
  await assert.rejects(resolve(null, { PGPORT: "7e4" }), /PGPORT: invalid integer value .* option "port"/);
  await assert.rejects(resolve(null, { PGSSLMODE: "on" }), /PGSSLMODE: invalid sslmode value: "on"/);
  await assert.rejects(resolve(null, { PGSERVICE: "s" }), /PGSERVICE: "service" is not supported: give the settings/);
});

void test("certificates are verified like libpq does", async () => {
  const verified = await resolve("postgres://h/d?sslmode=require&sslrootcert=/r");
  assert.equal(verified.sslmode, "verify-ca");
  assert.equal((await resolve("postgres://h/d?ssl=true")).sslmode, "require");
  const system = await resolve("postgres://h/d?sslrootcert=system");
  assert.deepEqual([system.sslmode, system.sslrootcert], ["verify-full", undefined]);
  await assert.rejects(
    resolve("postgres://h/d?sslrootcert=system&sslmode=require"),
    /weak sslmode "require" may not be used with sslrootcert=system/,
  );

  const folder = join(home, "with-files", ".postgresql");
  await mkdir(folder, { recursive: true });
  for (const name of ["root.crt", "postgresql.crt", "postgresql.key"]) {
    await writeFile(join(folder, name), "");
  }
  const found = await resolve("postgres://h/d?sslmode=require", { HOME: join(home, "with-files") });
  assert.equal(found.sslmode, "verify-ca");
  assert.equal(found.sslrootcert, join(folder, "root.crt"));
  assert.equal(found.sslcert, join(folder, "postgresql.crt"));
  assert.equal(found.sslkey, join(folder, "postgresql.key"));
});

/** Escapes a field for a password file. */
const escape = (field: string): string => field.replace(/[\\:]/g, "\\$&");

void test("any escaped password is found in a password file", () => {
  const field = text.filter((it) => !/[\r\n]/.test(it) && it !== "*" && !it.startsWith("#"));
  fc.assert(
    fc.property(field, field, field, field, fc.nat({ max: 15 }), (name, database, user, password, stars) => {
      const fields = [name, "5432", database, user].map((it, index) => ((stars >> index) % 2 === 1 ? "*" : escape(it)));
      const file = `# a comment\n\nnonsense\n${fields.join(":")}:${escape(password)}\n*:*:*:*:other\n`;
      const key = { host: name, port: 5432, database, user };
      assert.equal(findPassword(file, key), password);
      const elsewhere = findPassword(file, { ...key, port: 1 });
      assert.equal(elsewhere, fields[1] === "*" ? password : "other");
    }),
  );
});

void test("the first matching line counts, and the default socket is named localhost", () => {
  const file = "localhost:*:*:*:first\n*:*:*:*:second";
  const key = { port: 5432, database: "d", user: "u" };
  const socket = process.platform === "linux" ? "/var/run/postgresql" : "/tmp";
  assert.equal(findPassword(file, { ...key, host: socket }), "first");
  assert.equal(findPassword(file, { ...key, host: "/other" }), "second");
  assert.equal(findPassword("h:5432:d:u:with:colons", { ...key, host: "h" }), "with:colons");
  assert.equal(findPassword("h:5432:d", { ...key, host: "h" }), null);
});

void test("a password file that others may read is ignored with a warning", async () => {
  const path = join(home, "passwords");
  await writeFile(path, "*:*:*:*:from the file\n", { mode: 0o600 });
  const url = "postgres://u@h/d";
  assert.equal((await resolve(url, { PGPASSFILE: path })).password, "from the file");
  assert.equal((await resolve(url, { PGPASSFILE: path, PGPASSWORD: "p" })).password, "p");
  assert.deepEqual(warnings, []);
  await chmod(path, 0o640);
  assert.equal((await resolve(url, { PGPASSFILE: path })).password, undefined);
  assert.match(warnings.join(), /passwords is not used: .* permissions should be u=rw \(0600\)/);
});

test("a shared context looks up the files of the user once, however many targets there are", async () => {
  const folder = join(home, "shared");
  await mkdir(join(folder, ".postgresql"), { recursive: true });
  await writeFile(join(folder, ".postgresql/root.crt"), "");
  await writeFile(join(folder, ".pgpass"), "*:*:*:*:from the file", { mode: 0o600 });
  const context = sharedContext({ env: { HOME: folder }, warn: (message) => warnings.push(message) });
  const url = parseTargetUrl("postgres://user@host/db");
  const before = await resolveTarget(url, context);
  await rm(folder, { recursive: true });
  assert.deepEqual([before.password, before.sslrootcert], ["from the file", join(folder, ".postgresql/root.crt")]);
  assert.deepEqual(await resolveTarget(url, context), before);
});
