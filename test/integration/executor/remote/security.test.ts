import assert from "node:assert/strict";
import { chmod, copyFile, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { Authority } from "../../../support/certificates.js";
import { errorText, passwordOption, startRemoteDriver } from "../../../support/remoteDriver.js";
import { password } from "../../../support/remoteServer.js";
import { temporaryFolder } from "../../../support/temporaryFolder.js";
import { connectTo } from "../../../support/connectTo.js";

const { openDriver, remoteString, server } = await startRemoteDriver();

/** An empty home directory, without certificates or passwords. */
const home = await temporaryFolder();
const before = process.env["HOME"];
process.env["HOME"] = home;
after(() => {
  process.env["HOME"] = before;
});

const driver = await openDriver();
const ordinary = await openDriver({ isSuperuser: false });

const tls = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
const at = `connection to server at "127.0.0.1", port ${server.port} failed: `;
const root = `sslrootcert=${server.authority.certificate}`;
const strangersFolder = await temporaryFolder();
const stranger = await Authority.create(strangersFolder, "stranger");

const query = async (sql: string, more: string, through = driver) => {
  const { output, error } = await through.run(1, sql, { remote: `${remoteString} ${more}` });
  assert.equal(error, null);
  return output;
};

const refusal = async (more: string, through = driver) => {
  const { output, error } = await through.run(1, "SELECT 1", { remote: `${remoteString} ${more}` });
  assert.equal(output, "");
  assert.doesNotMatch(error ?? "", /secret/);
  return error;
};

const refused = async (more: string, message: string, through = driver) => {
  assert.equal(await refusal(more, through), errorText("SELECT 1", message));
};

test("sslmode determines whether TLS is used", async () => {
  const modes = { disable: "f", allow: "f", prefer: "t", require: "t" };
  for (const [mode, used] of Object.entries(modes)) {
    assert.equal(await query(tls, `sslmode=${mode}`), used, mode);
  }
});

test("allow and prefer retry with or without TLS when the server refuses the first attempt", async () => {
  assert.equal(await query(tls, `sslmode=allow user=encrypted ${passwordOption}`), "t");
  assert.equal(await query(tls, `sslmode=prefer user=plain ${passwordOption}`), "f");
  assert.match((await refusal(`sslmode=disable user=encrypted ${passwordOption}`)) ?? "", /no encryption/);
});

test("allow and prefer do not retry after an error that TLS does not affect", async () => {
  await server.admin.query("CREATE DATABASE closed ALLOW_CONNECTIONS false");
  for (const mode of ["allow", "prefer"]) {
    await refused(
      `sslmode=${mode} user=scram password=wrong`,
      `${at}FATAL:  password authentication failed for user "scram"`,
    );
    await refused(`sslmode=${mode} dbname=nowhere`, `${at}FATAL:  database "nowhere" does not exist`);
    await refused(
      `sslmode=${mode} dbname=closed`,
      `${at}FATAL:  database "closed" is not currently accepting connections`,
    );
    await refused(
      `sslmode=${mode} options='-c nothing=1'`,
      `${at}FATAL:  unrecognized configuration parameter "nothing"`,
    );
  }
});

test("the error contains the refusal of each attempt", async () => {
  const error = await refusal("sslmode=prefer user=nobody_known");
  const entry = /FATAL: {2}no pg_hba.conf entry for host "127.0.0.1", user "nobody_known"/g;
  assert.equal(error?.match(entry)?.length, 2);
});

test("too many connections are not retried with or without TLS", async () => {
  const { rows } = await server.admin.query<{ max: string }>(
    "SELECT setting AS max FROM pg_settings WHERE name = 'max_connections'",
  );
  const clients = [];
  const target = { host: "127.0.0.1", port: server.port, user: "postgres", database: "postgres" };
  const options = { ...target, sslmode: "disable", connectTimeoutMs: 10_000 } as const;
  try {
    for (let count = 0; count <= Number(rows[0]?.max); count += 1) {
      clients.push(await connectTo(options));
    }
    assert.fail("the server has no connection limit");
  } catch (error) {
    assert.match(String(error), /too many clients/);
    await refused("sslmode=prefer", `${at}FATAL:  sorry, too many clients already`);
    await refused("sslmode=allow", `${at}FATAL:  sorry, too many clients already`);
  } finally {
    for (const client of clients) await client.end();
  }
});

test("require does not verify, unless there are root certificates", async () => {
  assert.equal(await query(tls, "sslmode=require host=wrong.name hostaddr=127.0.0.1"), "t");
  assert.equal(await query(tls, "sslmode=require sslrootcert=/no/such/file"), "t");
  const error = await refusal(`sslmode=require sslrootcert=${stranger.certificate}`);
  assert.match(error ?? "", /failed: SSL error: certificate verify failed/);
});

test("verify-ca checks the issuer but not the name", async () => {
  const wrongName = "host=wrong.name hostaddr=127.0.0.1";
  assert.equal(await query(tls, `sslmode=verify-ca ${root} ${wrongName}`), "t");
  const error = await refusal(`sslmode=verify-ca sslrootcert=${stranger.certificate}`);
  assert.match(error ?? "", /certificate verify failed/);
});

test("verify-full also checks the name", async () => {
  assert.equal(await query(tls, `sslmode=verify-full ${root}`), "t");
  assert.equal(await query(tls, `sslmode=verify-full ${root} host=localhost`), "t");
  const error = await refusal(`sslmode=verify-full ${root} host=wrong.name hostaddr=127.0.0.1`);
  assert.match(error ?? "", /failed: server certificate for "server" does not match host name "wrong\.name"\n/);
});

test("verification requires root certificates", async () => {
  const missing = join(home, ".postgresql/root.crt");
  const error = await refusal("sslmode=verify-ca");
  assert.match(error ?? "", new RegExp(`root certificate file "${missing}" does not exist\n\t`));
  assert.match((await refusal("sslmode=verify-ca sslrootcert=/no/such")) ?? "", /could not read/);
  await mkdir(join(home, ".postgresql"));
  await copyFile(server.authority.certificate, missing);
  assert.equal(await query(tls, "sslmode=verify-full"), "t");
  await rm(missing);
});

test("system root certificates are those of SSL_CERT_FILE, or Node's", async () => {
  const system = "sslrootcert=system sslmode=verify-full";
  assert.match((await refusal(system)) ?? "", /certificate verify failed/);
  process.env["SSL_CERT_FILE"] = server.authority.certificate;
  assert.equal(await query(tls, system), "t");
  delete process.env["SSL_CERT_FILE"];
});

test("a server without TLS is refused if TLS is required", async () => {
  await server.admin.query("ALTER SYSTEM SET ssl = off");
  await server.admin.query("SELECT pg_reload_conf()");
  const off = async () => (await query("SHOW ssl", "sslmode=disable")) === "off";
  while (!(await off())) await pause(10);
  await refused("sslmode=require", `${at}server does not support SSL, but SSL was required`);
  assert.equal(await query(tls, "sslmode=prefer"), "f");
  await server.admin.query("ALTER SYSTEM SET ssl = on");
  await server.admin.query("SELECT pg_reload_conf()");
  while (await off()) await pause(10);
});

test("direct TLS negotiation and the TLS version can be chosen", async () => {
  assert.equal(await query(tls, "sslmode=require sslnegotiation=direct"), "t");
  const version = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
  assert.equal(await query(version, "sslmode=require ssl_max_protocol_version=TLSv1.2"), "TLSv1.2");
  assert.equal(await query(version, "sslmode=require ssl_min_protocol_version=TLSv1.3"), "TLSv1.3");
});

test("a client certificate authenticates the user", async () => {
  const certificate = `sslcert=${server.client.certificate} sslkey=${server.client.key}`;
  await chmod(server.client.key, 0o600);
  assert.equal(await query("SELECT current_user", `sslmode=require user=certified ${certificate}`), "certified");
  assert.match((await refusal("sslmode=require user=certified")) ?? "", /client certificate/);
  const without = `sslmode=require user=certified sslcertmode=disable ${certificate}`;
  assert.match((await refusal(without)) ?? "", /client certificate/);
  await chmod(server.client.key, 0o644);
  assert.match((await refusal(`sslmode=require user=certified ${certificate}`)) ?? "", /group or world access/);
});

for (const user of ["scram", "hashed", "cleartext"]) {
  test(`${user}: the password is sent by the method that the server requests`, async () => {
    for (const mode of ["disable", "require"]) {
      const more = `user=${user} sslmode=${mode}`;
      assert.equal(await query("SELECT current_user", `${more} ${passwordOption}`), user);
      assert.equal(await query("SELECT current_user", `${more} ${passwordOption}`, ordinary), user);
      await refused(`${more} password=wrong`, `${at}FATAL:  password authentication failed for user "${user}"`);
      await refused(more, `${at}fe_sendauth: no password supplied`);
    }
  });
}

test("channel_binding and require_auth restrict the authentication methods", async () => {
  const scram = `user=scram ${passwordOption}`;
  assert.equal(await query("SELECT 1", `${scram} sslmode=require channel_binding=require`), "1");
  assert.equal(await query("SELECT 1", `${scram} sslmode=require channel_binding=disable`), "1");
  assert.match((await refusal(`${scram} channel_binding=require`)) ?? "", /channel binding is required/);
  assert.match(
    (await refusal(`user=hashed ${passwordOption} sslmode=require channel_binding=require`)) ?? "",
    /channel binding required/,
  );
  assert.match(
    (await refusal("user=trusted sslmode=require channel_binding=require")) ?? "",
    /without channel binding/,
  );
  assert.equal(await query("SELECT 1", `${scram} require_auth=md5,scram-sha-256`), "1");
  assert.equal(await query("SELECT 1", `user=trusted require_auth=!password`), "1");
  await refused(
    `user=cleartext ${passwordOption} require_auth=!password`,
    `${at}authentication method requirement "md5,gss,sspi,scram-sha-256,none" failed: server requested a cleartext password`,
  );
  await refused(
    `user=trusted require_auth=scram-sha-256`,
    `${at}authentication method requirement "scram-sha-256" failed: server did not complete authentication`,
  );
});

test("a superuser's password may come from PGPASSWORD or a password file", async () => {
  process.env["PGPASSWORD"] = password;
  assert.equal(await query("SELECT current_user", "user=scram"), "scram");
  delete process.env["PGPASSWORD"];
  const file = join(home, "passwords");
  const line = `127.0.0.1:${server.port}:*:scram:${password.replaceAll("\\", "\\\\")}\n`;
  await writeFile(file, line, { mode: 0o600 });
  assert.equal(await query("SELECT current_user", `user=scram passfile=${file}`), "scram");
  process.env["PGPASSFILE"] = file;
  assert.equal(await query("SELECT current_user", "user=scram"), "scram");
  assert.match((await refusal("user=cleartext")) ?? "", /no password supplied/);
  delete process.env["PGPASSFILE"];
});

test("the manager's password is sent only to the manager's server", async () => {
  const target = {
    host: "127.0.0.1",
    port: server.port,
    user: "scram",
    database: "postgres",
    password,
    sslmode: "disable",
    connectTimeoutMs: 10_000,
  } as const;
  const scramDriver = await openDriver({ target });
  const run = async (remote: string) => await scramDriver.run(1, "SELECT current_user", { remote });
  assert.equal((await run("dbname=postgres")).output, "scram");
  assert.match((await run("user=cleartext")).error ?? "", /no password supplied/);
  assert.match((await run(`host=localhost`)).error ?? "", /no password supplied/);
});

const required = (input: string, detail: string, ...hint: readonly string[]) =>
  ["ERROR:  password is required", `DETAIL:  ${detail}`, ...hint, `STATEMENT:  ${input}`].join("\n");

test("non-superusers must give a password, and the server must request it", async () => {
  const needed = required("SELECT 1", "Non-superusers must provide a password in the connection string.");
  assert.equal(await refusal("user=scram", ordinary), needed);
  assert.equal(await refusal("user=scram password=", ordinary), needed);
  const trusted = await refusal(`user=trusted ${passwordOption}`, ordinary);
  const unasked = required(
    "SELECT 1",
    "Non-superuser cannot connect if the server does not request a password.",
    "HINT:  Target server's authentication method must be changed.",
  );
  assert.equal(trusted, unasked);
  assert.equal(await query("SELECT current_user", `user=trusted ${passwordOption}`), "trusted");
});

test("non-superusers use no credentials of the process", async () => {
  process.env["PGPASSWORD"] = password;
  assert.match((await refusal("user=scram", ordinary)) ?? "", /password is required/);
  delete process.env["PGPASSWORD"];
  const folder = join(home, ".postgresql");
  await copyFile(server.client.certificate, join(folder, "postgresql.crt"));
  await copyFile(server.client.key, join(folder, "postgresql.key"));
  await chmod(join(folder, "postgresql.key"), 0o600);
  const certified = `sslmode=require user=certified ${passwordOption}`;
  assert.equal(await query("SELECT current_user", certified), "certified");
  assert.match((await refusal(certified, ordinary)) ?? "", /client certificate/);
  for (const file of ["sslcert", "sslkey", "passfile"]) {
    const error = await refusal(`${file}=/x ${passwordOption}`, ordinary);
    assert.match(error ?? "", new RegExp(`"${file}" is not allowed in the connection string`));
  }
});
