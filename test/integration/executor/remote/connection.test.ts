import assert from "node:assert/strict";
import { test } from "node:test";
import {
  failure,
  openDriver,
  place,
  server,
  startStranger,
} from "../../../support/remoteDriver.js";

const driver = await openDriver();

const look = async (sql: string, more = "", base = place) => {
  const { output, error } = await driver.run(1, sql, { remote: `${base} ${more}` });
  assert.equal(error, null);
  return output;
};

const refused = async (remote: string, ...lines: readonly string[]) => {
  const { output, error } = await driver.run(1, "SELECT 1", { remote });
  assert.deepEqual([output, error], ["", failure("SELECT 1", ...lines)]);
};

const setting = (name: string) => `SELECT current_setting('${name}')`;

await server.admin.query("CREATE DATABASE elsewhere");
await server.admin.query(
  "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C' LOCALE_PROVIDER libc",
);

test("host, port, dbname and user say where and as whom a task runs", async () => {
  assert.equal(await look("SELECT inet_server_port()"), String(server.port));
  assert.equal(await look("SELECT current_database()", "dbname=elsewhere"), "elsewhere");
  assert.equal(await look("SELECT current_user", "user=trusted"), "trusted");
});

test("a URI says the same", async () => {
  const uri = `postgresql://trusted@127.0.0.1:${server.port}/elsewhere?sslmode=disable`;
  const sql = "SELECT concat_ws(' ', current_user, current_database(), inet_server_port())";
  assert.equal(await look(sql, "", uri), `trusted elsewhere ${server.port}`);
});

test("a database name that is a connection string is taken for what it says", async () => {
  const uri = `dbname=postgresql://trusted@127.0.0.1:${server.port}/elsewhere?sslmode=disable`;
  assert.equal(await look("SELECT current_database()", "", uri), "elsewhere");
});

test("what a string leaves open comes from the manager's own connection", async () => {
  const sql = "SELECT concat_ws(' ', inet_server_port(), current_database(), current_user)";
  assert.equal(await look(sql, "", ""), (await driver.run(1, sql)).output);
  assert.equal(
    await look(sql, "", "dbname=postgres"),
    (await driver.run(1, sql)).output?.replace(/test_\w+/, "postgres"),
  );
});

test("hostaddr says where, host whose it is", async () => {
  const sql = "SELECT inet_server_addr()";
  assert.equal(await look(sql, "host=no.such.host.invalid hostaddr=127.0.0.1"), "127.0.0.1");
  await refused(
    "hostaddr=localhost",
    'could not parse network address "localhost": Name or service not known',
  );
});

test("options reach the server, and stand above what is set for every remote task", async () => {
  assert.equal(await look(setting("work_mem"), "options='-c work_mem=3MB'"), "3MB");
  const idle = "options='-c tcp_keepalives_idle=77'";
  assert.equal(await look(setting("tcp_keepalives_idle"), idle), "77");
  assert.equal(await look(setting("tcp_keepalives_idle")), "5");
});

test("a session whose client vanishes is found by the server", async () => {
  assert.equal(await look(setting("client_connection_check_interval")), "200ms");
  const mine = "options='-c client_connection_check_interval=5s'";
  assert.equal(await look(setting("client_connection_check_interval"), mine), "5s");
});

test("the settings of a task are those of its own, on its server too", async () => {
  const sql = `SELECT concat_ws(' ', current_setting('pg_task.id'), current_setting('pg_task.schema'), current_setting('pg_task.table'), current_setting('pg_task.group'))`;
  const run = driver.make(1, sql, { remote: place, group: "reports" });
  driver.executor.dispatch([run]);
  const result = await driver.result(run.id);
  assert.equal(result.outcome === "ended" && result.output, `${run.id} public task reports`);
});

test("a session is named for its task unless the string names it", async () => {
  const name = setting("application_name");
  assert.equal(await look(name), "pg_task public task group");
  assert.equal(await look(name, "fallback_application_name=fallback"), "fallback");
  assert.equal(
    await look(name, "fallback_application_name=fallback application_name=given"),
    "given",
  );
});

test("the output of a server or a string in another encoding is stored right", async () => {
  assert.equal(await look("SELECT 'Grüße'", "client_encoding=LATIN1"), "Grüße");
  assert.equal(
    await look("RESET client_encoding; SELECT 'Grüße'", "client_encoding=LATIN1"),
    "RESET\nGrüße",
  );
  assert.equal(
    await look("SELECT length('Grüße'), 'Grüße'", "client_encoding=auto dbname=latin"),
    "length\t?column?\n5\tGrüße",
  );
  await refused(
    `${place} client_encoding=klingon`,
    `connection to server at "127.0.0.1", port ${server.port} failed: invalid value for parameter "client_encoding": "klingon"`,
  );
});

test("of several hosts the first that lets in has the task", async () => {
  const dead = await startStranger((socket) => socket.destroy());
  const sql = "SELECT inet_server_port()";
  const several = `host=127.0.0.1,127.0.0.1 port=1,${server.port}`;
  assert.equal(await look(sql, several), String(server.port));
  assert.equal(await look(sql, `host=no.such.host.invalid,127.0.0.1`), String(server.port));
  const uri = `postgresql://postgres@127.0.0.1:1,127.0.0.1:${server.port}/postgres?sslmode=disable`;
  assert.equal(await look(sql, "", uri), String(server.port));
  assert.equal(await look(sql, `${several} load_balance_hosts=random`), String(server.port));
  await refused(`${place} port=${dead},${dead}`, `could not match 2 port numbers to 1 hosts`);
  await refused(`${place} hostaddr=::1,::1`, "could not match 1 host names to 2 hostaddr values");
});

const unreachable = (port: number) =>
  `connection to server at "127.0.0.1", port ${port} failed: Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?`;

test("a connection that every server refuses names each", async () => {
  await refused("host=127.0.0.1,127.0.0.1 port=1,2", `${unreachable(1)}\n\t${unreachable(2)}`);
});

test("what is no server is an error like others", async () => {
  await refused(
    "host=no.such.host.invalid",
    'could not translate host name "no.such.host.invalid" to address: Name or service not known',
  );
  // The rest of a password whose "@" is not percent-encoded, as libpq reads it.
  await refused(
    "postgresql://u:ses@ame@no.such.host.invalid/d",
    'could not translate host name "***@no.such.host.invalid" to address: Name or service not known',
  );
  await refused(
    "host=/no/such port=5",
    'connection to server on socket "/no/such/.s.PGSQL.5" failed: No such file or directory\n\tIs the server running locally and accepting connections on that socket?',
  );
  const closing = await startStranger((socket) => socket.end());
  await refused(
    `${place} port=${closing}`,
    `connection to server at "127.0.0.1", port ${closing} failed: server closed the connection unexpectedly`,
  );
  const web = await startStranger((socket) =>
    socket.once("data", () => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")),
  );
  await refused(
    `${place} port=${web} sslmode=prefer`,
    `connection to server at "127.0.0.1", port ${web} failed: received invalid response to SSL negotiation: "H"`,
  );
  const { error } = await driver.run(1, "SELECT 1", { remote: `${place} port=${web}` });
  assert.match(error ?? "", /^ERROR: {2}connection to server at "127.0.0.1", port \d+ failed: /);
});

test("the server's own refusal is the error", async () => {
  const at = `connection to server at "127.0.0.1", port ${server.port} failed: `;
  await refused(`${place} dbname=nowhere`, `${at}FATAL:  database "nowhere" does not exist`);
  await refused(
    `${place} options='-c nothing=1'`,
    `${at}FATAL:  unrecognized configuration parameter "nothing"`,
  );
});

/** A server without TLS that refuses everybody, and how many have logged in at it. */
async function startRefusing(code: string, message: string) {
  const logins = { count: 0 };
  const fields = `SFATAL\0VFATAL\0C${code}\0M${message}\0\0`;
  const refusal = Buffer.alloc(5);
  refusal.write("E", "latin1");
  refusal.writeInt32BE(4 + fields.length, 1);
  const port = await startStranger((socket) =>
    socket.on("data", (data) => {
      if (data.length === 8) return socket.write("N");
      logins.count += 1;
      return socket.end(Buffer.concat([refusal, Buffer.from(fields)]));
    }),
  );
  return { port, logins, at: `connection to server at "127.0.0.1", port ${port} failed: ` };
}

test("where there is no TLS prefer does not try without it again", async () => {
  const { port, logins, at } = await startRefusing("28000", "no pg_hba.conf entry");
  await refused(`${place} port=${port} sslmode=prefer`, `${at}FATAL:  no pg_hba.conf entry`);
  assert.equal(logins.count, 1);
});

test("allow tries with TLS where a pooler's words may mean that it wants it", async () => {
  const { port, at } = await startRefusing("08P01", "SSL required");
  const error = `${at}server does not support SSL, but SSL was required`;
  await refused(`${place} port=${port} sslmode=allow`, `${at}FATAL:  SSL required\n\t${error}`);
});

test("the same words for both ways stand once in the error", async () => {
  for (const mode of ["prefer", "allow"]) {
    await refused(
      `${place} user=nobody sslmode=${mode}`,
      `connection to server at "127.0.0.1", port ${server.port} failed: FATAL:  Ident authentication failed for user "nobody"`,
    );
  }
});

const asked = (): number => driver.messages.filter(({ type }) => type === "room").length;

test("another server that has no room is the task's error", async () => {
  const before = asked();
  await server.admin.query("ALTER ROLE trusted CONNECTION LIMIT 0");
  await refused(
    `${place} user=trusted`,
    `connection to server at "127.0.0.1", port ${server.port} failed: FATAL:  too many connections for role "trusted"`,
  );
  await server.admin.query("ALTER ROLE trusted CONNECTION LIMIT -1");
  assert.equal(asked(), before);
});

test("connect_timeout ends an attempt, and the next server is tried", async () => {
  const silent = await startStranger(() => {});
  await refused(
    `${place} port=${silent} connect_timeout=1`,
    `connection to server at "127.0.0.1", port ${silent} failed: timeout expired`,
  );
  const several = `host=127.0.0.1,127.0.0.1 port=${silent},${server.port} connect_timeout=1`;
  assert.equal(await look("SELECT inet_server_port()", several), String(server.port));
});

test("target_session_attrs passes over servers of another kind", async () => {
  await server.admin.query("ALTER DATABASE elsewhere SET default_transaction_read_only = on");
  const at = `connection to server at "127.0.0.1", port ${server.port} failed: `;
  const only = "dbname=elsewhere";
  assert.equal(await look("SELECT 1", `${only} target_session_attrs=read-only`), "1");
  assert.equal(await look("SELECT 1", `${only} target_session_attrs=primary`), "1");
  assert.equal(await look("SELECT 1", `${only} target_session_attrs=prefer-standby`), "1");
  assert.equal(await look("SELECT 1", `${only} target_session_attrs=any`), "1");
  assert.equal(await look("SELECT 1", `target_session_attrs=read-write`), "1");
  await refused(`${place} ${only} target_session_attrs=read-write`, `${at}session is read-only`);
  await refused(`${place} target_session_attrs=read-only`, `${at}session is not read-only`);
  await refused(`${place} target_session_attrs=standby`, `${at}server is not in hot standby mode`);
  const twice = `host=127.0.0.1,127.0.0.1 target_session_attrs=standby`;
  await refused(
    `${place} ${twice}`,
    `${at}server is not in hot standby mode\n\t${at}server is not in hot standby mode`,
  );
});

const wrong: readonly (readonly [string, string])[] = [
  ["application_name", 'missing "=" after "application_name" in connection info string'],
  ["host='x", "unterminated quoted string in connection info string"],
  ["nothing=1", 'invalid connection option "nothing"'],
  ["postgresql://h?nothing=1", 'invalid URI query parameter: "nothing"'],
  ["service=x", '"service" is not supported in the connection string'],
  ["port=abc", 'invalid integer value "abc" for connection option "port"'],
  ["port=70000", 'invalid port number: "70000"'],
  ["connect_timeout=x", 'invalid integer value "x" for connection option "connect_timeout"'],
  ["keepalives=x", 'invalid integer value "x" for connection option "keepalives"'],
  ["keepalives_count=x", 'invalid integer value "x" for connection option "keepalives_count"'],
  ["sslmode=x", 'invalid sslmode value: "x"'],
  ["target_session_attrs=x", 'invalid target_session_attrs value: "x"'],
  ["channel_binding=x", 'invalid channel_binding value: "x"'],
  ["require_auth=x", 'invalid require_auth value: "x"'],
  [
    "require_auth=md5,!none",
    'negative require_auth method "!none" cannot be mixed with non-negative methods',
  ],
  ["load_balance_hosts=x", 'invalid load_balance_hosts value: "x"'],
  ["ssl_min_protocol_version=x", 'invalid ssl_min_protocol_version value: "x"'],
  [
    "ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2",
    "invalid SSL protocol version range",
  ],
  [
    "sslnegotiation=direct sslmode=prefer",
    'weak sslmode "prefer" may not be used with sslnegotiation=direct (use "require", "verify-ca", or "verify-full")',
  ],
  [
    "sslrootcert=system sslmode=require",
    'weak sslmode "require" may not be used with sslrootcert=system (use "verify-full")',
  ],
  [
    "gssencmode=require",
    'gssencmode value "require" invalid when GSSAPI support is not compiled in',
  ],
  ["min_protocol_version=3.2", 'min_protocol_version "3.2" is not supported'],
  ["sslcertmode=require", 'sslcertmode "require" is not supported'],
];
for (const [remote, message] of wrong) {
  test(`${remote} is the error ${message}`, () => refused(remote, message));
}

test("what has no meaning here does no harm", async () => {
  const harmless =
    "keepalives=1 keepalives_idle=5 keepalives_interval=1 keepalives_count=2 tcp_user_timeout=9 " +
    "gssencmode=prefer krbsrvname=x gsslib=gssapi gssdelegation=0 sslcompression=0 sslsni=0 max_protocol_version=latest";
  assert.equal(await look("SELECT 1", harmless), "1");
});

test("PG* variables say what neither string nor connection says", async () => {
  const variables = {
    PGOPTIONS: "-c work_mem=5MB",
    PGTZ: "Asia/Tokyo",
    PGPORT: "1",
    PGHOSTADDR: "10.0.0.1",
  };
  const before = Object.keys(variables).map((name) => [name, process.env[name]] as const);
  Object.assign(process.env, variables);
  try {
    assert.equal(await look(setting("work_mem")), "5MB");
    assert.equal(await look(setting("work_mem"), "options='-c work_mem=6MB'"), "6MB");
    assert.equal(await look(setting("TimeZone")), "Asia/Tokyo");
    process.env["PGTARGETSESSIONATTRS"] = "nothing";
    await refused(place, 'invalid target_session_attrs value: "nothing"');
    process.env["PGREQUIREPEER"] = "x";
    await refused(place, "PGREQUIREPEER is not supported for remote tasks");
  } finally {
    for (const [name, value] of [
      ...before,
      ["PGTARGETSESSIONATTRS", undefined],
      ["PGREQUIREPEER", undefined],
    ] as const) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  }
});

test("a remote run leaves its session as it was", async () => {
  const before = driver.backend(1).pid;
  assert.equal((await driver.run(1, "SELECT pg_backend_pid()")).output, String(before));
  const name = await driver.run(1, "SELECT current_setting('application_name')");
  assert.equal(name.output, "pg_task public task group");
  assert.deepEqual(
    driver.messages.filter(({ type }) => type === "lost" || type === "closed"),
    [],
  );
});
