import assert from "node:assert/strict";
import { test } from "node:test";
import { startRawServer } from "../../../support/listen.js";
import { errorText, startRemoteDriver } from "../../../support/remoteDriver.js";
import { secretRemotes } from "../../../support/secretRemotes.js";

const { openDriver, remoteString, server } = await startRemoteDriver();

const driver = await openDriver();

const query = async (sql: string, more = "", base = remoteString) => {
  const { output, error } = await driver.run(1, sql, { remote: `${base} ${more}` });
  assert.equal(error, null);
  return output;
};

const refused = async (remote: string, ...lines: readonly string[]) => {
  const { output, error } = await driver.run(1, "SELECT 1", { remote });
  assert.deepEqual([output, error], ["", errorText("SELECT 1", ...lines)]);
};

const setting = (name: string) => `SELECT current_setting('${name}')`;

await server.admin.query("CREATE DATABASE elsewhere");
await server.admin.query("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C' LOCALE_PROVIDER libc");

test("host, port, dbname and user determine where and as whom a task runs", async () => {
  assert.equal(await query("SELECT inet_server_port()"), String(server.port));
  assert.equal(await query("SELECT current_database()", "dbname=elsewhere"), "elsewhere");
  assert.equal(await query("SELECT current_user", "user=trusted"), "trusted");
});

test("what the string omits comes from the manager's connection", async () => {
  const sql = "SELECT concat_ws(' ', inet_server_port(), current_database(), current_user)";
  assert.equal(await query(sql, "", ""), (await driver.run(1, sql)).output);
  assert.equal(
    await query(sql, "", "dbname=postgres"),
    (await driver.run(1, sql)).output?.replace(/test_\w+/, "postgres"),
  );
});

test("hostaddr is connected to, host only names it", async () => {
  const sql = "SELECT inet_server_addr()";
  assert.equal(await query(sql, "host=no.such.host.invalid hostaddr=127.0.0.1"), "127.0.0.1");
  await refused("hostaddr=localhost", 'could not parse network address "localhost": Name or service not known');
});

test("options reach the server and override the settings of every remote task", async () => {
  assert.equal(await query(setting("work_mem"), "options='-c work_mem=3MB'"), "3MB");
  const idle = "options='-c tcp_keepalives_idle=77'";
  assert.equal(await query(setting("tcp_keepalives_idle"), idle), "77");
  assert.equal(await query(setting("tcp_keepalives_idle")), "5");
});

test("the server checks whether the client is still connected", async () => {
  assert.equal(await query(setting("client_connection_check_interval")), "200ms");
  const mine = "options='-c client_connection_check_interval=5s'";
  assert.equal(await query(setting("client_connection_check_interval"), mine), "5s");
});

test("a remote task sees its own pg_task settings", async () => {
  const sql = `SELECT concat_ws(' ', current_setting('pg_task.id'), current_setting('pg_task.schema'), current_setting('pg_task.table'), current_setting('pg_task.group'))`;
  const run = driver.dispatch(1, sql, { remote: remoteString, group: "reports" });
  const result = await driver.result(run.id);
  assert.equal(result.outcome === "ended" && result.output, `${run.id} public task reports`);
});

test("the application name is the task's unless the string gives one", async () => {
  const name = setting("application_name");
  assert.equal(await query(name), "pg_task public task group");
  assert.equal(await query(name, "fallback_application_name=fallback"), "fallback");
  assert.equal(await query(name, "fallback_application_name=fallback application_name=given"), "given");
});

test("output is stored correctly with another server or client encoding", async () => {
  assert.equal(await query("SELECT 'Grüße'", "client_encoding=LATIN1"), "Grüße");
  assert.equal(await query("RESET client_encoding; SELECT 'Grüße'", "client_encoding=LATIN1"), "RESET\nGrüße");
  assert.equal(
    await query("SELECT length('Grüße'), 'Grüße'", "client_encoding=auto dbname=latin"),
    "length\t?column?\n5\tGrüße",
  );
  await refused(
    `${remoteString} client_encoding=klingon`,
    `connection to server at "127.0.0.1", port ${server.port} failed: invalid value for parameter "client_encoding": "klingon"`,
  );
});

test("the first of several hosts that accepts the login runs the task", async () => {
  const dead = await startRawServer((socket) => socket.destroy());
  const sql = "SELECT inet_server_port()";
  const several = `host=127.0.0.1,127.0.0.1 port=1,${server.port}`;
  assert.equal(await query(sql, several), String(server.port));
  assert.equal(await query(sql, `host=no.such.host.invalid,127.0.0.1`), String(server.port));
  const uri = `postgresql://postgres@127.0.0.1:1,127.0.0.1:${server.port}/postgres?sslmode=disable`;
  assert.equal(await query(sql, "", uri), String(server.port));
  assert.equal(await query(sql, `${several} load_balance_hosts=random`), String(server.port));
  await refused(`${remoteString} port=${dead},${dead}`, `could not match 2 port numbers to 1 hosts`);
  await refused(`${remoteString} hostaddr=::1,::1`, "could not match 1 host names to 2 hostaddr values");
});

const unreachable = (port: number) =>
  `connection to server at "127.0.0.1", port ${port} failed: Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?`;

test("an error shows no part of a password, wherever it is in the string", async () => {
  for (const remote of ["hush", "hush@hush", "hush/hush", "it's hush"].flatMap(secretRemotes)) {
    const { error } = await driver.run(1, "SELECT 1", { remote });
    assert.match(error ?? "", /^ERROR: /, remote);
    assert.doesNotMatch(error ?? "", /hush/, remote);
  }
  await refused(
    "postgresql://u:hush@hush@no.such.host.invalid/d",
    'connection to server "***" failed (SQLSTATE 08001)\nHINT:  A password may be in the wrong place of "remote". In a URL, write "@", ":" and "/" in a password as %40, %3A and %2F.',
  );
});

test("an error of all servers names each", async () => {
  await refused("host=127.0.0.1,127.0.0.1 port=1,2", `${unreachable(1)}\n\t${unreachable(2)}`);
});

test("a server that cannot be reached is the task's error", async () => {
  await refused(
    "host=no.such.host.invalid",
    'could not translate host name "no.such.host.invalid" to address: Name or service not known',
  );
  await refused(
    "host=/no/such port=5",
    'connection to server on socket "/no/such/.s.PGSQL.5" failed: No such file or directory\n\tIs the server running locally and accepting connections on that socket?',
  );
  const closing = await startRawServer((socket) => socket.end());
  await refused(
    `${remoteString} port=${closing}`,
    `connection to server at "127.0.0.1", port ${closing} failed: server closed the connection unexpectedly`,
  );
  const web = await startRawServer((socket) =>
    socket.once("data", () => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")),
  );
  await refused(
    `${remoteString} port=${web} sslmode=prefer`,
    `connection to server at "127.0.0.1", port ${web} failed: received invalid response to SSL negotiation: "H"`,
  );
  const { error } = await driver.run(1, "SELECT 1", { remote: `${remoteString} port=${web}` });
  assert.match(error ?? "", /^ERROR: {2}connection to server at "127.0.0.1", port \d+ failed: /);
});

test("the server's refusal is the task's error", async () => {
  const at = `connection to server at "127.0.0.1", port ${server.port} failed: `;
  await refused(`${remoteString} dbname=nowhere`, `${at}FATAL:  database "nowhere" does not exist`);
  await refused(
    `${remoteString} options='-c nothing=1'`,
    `${at}FATAL:  unrecognized configuration parameter "nothing"`,
  );
});

/** Starts a server without TLS that refuses every login, and counts the logins. */
async function startRefusing(code: string, message: string) {
  const logins = { count: 0 };
  const fields = `SFATAL\0VFATAL\0C${code}\0M${message}\0\0`;
  const refusal = Buffer.alloc(5);
  refusal.write("E", "latin1");
  refusal.writeInt32BE(4 + fields.length, 1);
  const port = await startRawServer((socket) =>
    socket.on("data", (data) => {
      if (data.length === 8) return socket.write("N");
      logins.count += 1;
      return socket.end(Buffer.concat([refusal, Buffer.from(fields)]));
    }),
  );
  return { port, logins, at: `connection to server at "127.0.0.1", port ${port} failed: ` };
}

test("prefer does not retry without TLS on a server that has none", async () => {
  const { port, logins, at } = await startRefusing("28000", "no pg_hba.conf entry");
  await refused(`${remoteString} port=${port} sslmode=prefer`, `${at}FATAL:  no pg_hba.conf entry`);
  assert.equal(logins.count, 1);
});

test("allow retries with TLS when a pooler's refusal may ask for it", async () => {
  const { port, at } = await startRefusing("08P01", "SSL required");
  const error = `${at}server does not support SSL, but SSL was required`;
  await refused(`${remoteString} port=${port} sslmode=allow`, `${at}FATAL:  SSL required\n\t${error}`);
});

test("the same message with and without TLS is reported once", async () => {
  for (const mode of ["prefer", "allow"]) {
    await refused(
      `${remoteString} user=nobody sslmode=${mode}`,
      `connection to server at "127.0.0.1", port ${server.port} failed: FATAL:  Ident authentication failed for user "nobody"`,
    );
  }
});

const permitRequests = (): number => driver.messages.filter(({ type }) => type === "requestConnectionPermit").length;

test("too many connections on another server are the task's error", async () => {
  const before = permitRequests();
  await server.admin.query("ALTER ROLE trusted CONNECTION LIMIT 0");
  await refused(
    `${remoteString} user=trusted`,
    `connection to server at "127.0.0.1", port ${server.port} failed: FATAL:  too many connections for role "trusted"`,
  );
  await server.admin.query("ALTER ROLE trusted CONNECTION LIMIT -1");
  assert.equal(permitRequests(), before);
});

test("after connect_timeout the next server is tried", async () => {
  const silent = await startRawServer(() => {});
  await refused(
    `${remoteString} port=${silent} connect_timeout=1`,
    `connection to server at "127.0.0.1", port ${silent} failed: timeout expired`,
  );
  const several = `host=127.0.0.1,127.0.0.1 port=${silent},${server.port} connect_timeout=1`;
  assert.equal(await query("SELECT inet_server_port()", several), String(server.port));
});

test("target_session_attrs skips servers of another kind", async () => {
  await server.admin.query("ALTER DATABASE elsewhere SET default_transaction_read_only = on");
  const at = `connection to server at "127.0.0.1", port ${server.port} failed: `;
  const only = "dbname=elsewhere";
  assert.equal(await query("SELECT 1", `${only} target_session_attrs=read-only`), "1");
  assert.equal(await query("SELECT 1", `${only} target_session_attrs=primary`), "1");
  assert.equal(await query("SELECT 1", `${only} target_session_attrs=prefer-standby`), "1");
  assert.equal(await query("SELECT 1", `${only} target_session_attrs=any`), "1");
  assert.equal(await query("SELECT 1", `target_session_attrs=read-write`), "1");
  await refused(`${remoteString} ${only} target_session_attrs=read-write`, `${at}session is read-only`);
  await refused(`${remoteString} target_session_attrs=read-only`, `${at}session is not read-only`);
  await refused(`${remoteString} target_session_attrs=standby`, `${at}server is not in hot standby mode`);
  const twice = `host=127.0.0.1,127.0.0.1 target_session_attrs=standby`;
  await refused(
    `${remoteString} ${twice}`,
    `${at}server is not in hot standby mode\n\t${at}server is not in hot standby mode`,
  );
});

test("PG* variables apply where string and manager's connection give nothing", async () => {
  const variables = {
    PGOPTIONS: "-c work_mem=5MB",
    PGTZ: "Asia/Tokyo",
    PGPORT: "1",
    PGHOSTADDR: "10.0.0.1",
  };
  const before = Object.keys(variables).map((name) => [name, process.env[name]] as const);
  Object.assign(process.env, variables);
  try {
    assert.equal(await query(setting("work_mem")), "5MB");
    assert.equal(await query(setting("work_mem"), "options='-c work_mem=6MB'"), "6MB");
    assert.equal(await query(setting("TimeZone")), "Asia/Tokyo");
    process.env["PGTARGETSESSIONATTRS"] = "nothing";
    await refused(
      remoteString,
      'PGTARGETSESSIONATTRS: invalid target_session_attrs value: "nothing" (expected any, read-write, read-only, primary, standby, prefer-standby)',
    );
    process.env["PGREQUIREPEER"] = "x";
    await refused(
      remoteString,
      'PGREQUIREPEER: "requirepeer" is not supported: connect to the server\'s address, and verify its certificate with sslmode',
    );
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

test("a remote run leaves the local session unchanged", async () => {
  const before = driver.backend(1).pid;
  assert.equal((await driver.run(1, "SELECT pg_backend_pid()")).output, String(before));
  const name = await driver.run(1, "SELECT current_setting('application_name')");
  assert.equal(name.output, "pg_task public task group");
  assert.deepEqual(
    driver.messages.filter(({ type }) => type === "lost" || type === "closed"),
    [],
  );
});
