import assert from "node:assert/strict";
import { chmod, copyFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { openProtocolConnection } from "../../../../src/shared/postgres/openProtocolConnection.js";
import type { SslMode } from "../../../../src/shared/postgres/transport/sslMode.js";
import type { ConnectionTarget } from "../../../../src/shared/postgres/target/target.js";
import * as database from "../../../../src/shared/postgres/client.js";
import { PgTaskError } from "../../../../src/shared/errors.js";
import { buildStartup } from "../../../../src/shared/postgres/startupOptions.js";
import { Authority } from "../../../support/certificates.js";
import { startRawServer } from "../../../support/listen.js";
import { password, startRemoteServer } from "../../../support/remoteServer.js";

const applicationName = "test";
const tls = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

/** Whether a connection is encrypted, or why it failed. */
type Outcome = { readonly encrypted: boolean } | { readonly code: string; readonly state?: string };

const refusal = (error: unknown): Outcome => {
  if (!(error instanceof PgTaskError)) throw error;
  assert.ok(!error.message.includes(password), "no message holds the password");
  const { code, sqlState } = error;
  return { code, ...(sqlState === undefined ? {} : { state: sqlState }) };
};

/** Connects as a session does. */
async function connectSession(target: ConnectionTarget): Promise<Outcome> {
  try {
    const options = { applicationName, startup: buildStartup({}), messageLimit: () => 1 << 16 };
    const { wire } = await openProtocolConnection(target, options);
    const { rows } = await wire.query(tls);
    await wire.close();
    return { encrypted: rows[0]?.[0] === "t" };
  } catch (error) {
    return refusal(error);
  }
}

/** Connects as a manager does. */
async function connectManager(target: ConnectionTarget): Promise<Outcome> {
  try {
    const client = await database.connectClient(target, { applicationName });
    const { rows } = await client.query<{ ssl: boolean }>(tls);
    await client.end();
    return { encrypted: rows[0]?.ssl === true };
  } catch (error) {
    return refusal(error);
  }
}

const server = await startRemoteServer();
const stranger = await Authority.create(server.folder, "stranger");
const base: ConnectionTarget = {
  host: "127.0.0.1",
  port: server.port,
  database: "postgres",
  user: "trusted",
  sslmode: "disable",
  connectTimeoutMs: 10_000,
};

/** Asserts that connecting has this outcome for a session. Managers log in by the same function. */
async function expectOutcome(more: Partial<ConnectionTarget>, expected: Outcome): Promise<void> {
  assert.deepEqual(await connectSession({ ...base, ...more }), expected, JSON.stringify(more));
}

const modes: readonly SslMode[] = ["disable", "allow", "prefer", "require"];
const noEntry = { code: "CONNECTION_REJECTED", state: "28000" };

test("connections are encrypted according to sslmode", async () => {
  for (const sslmode of modes) {
    const encrypted = sslmode === "prefer" || sslmode === "require";
    await expectOutcome({ sslmode }, { encrypted });
  }
});

test("a manager logs in as a session does", async () => {
  const scram = { ...base, user: "scram", password };
  assert.deepEqual(await connectManager({ ...scram, sslmode: "require" }), { encrypted: true });
  assert.deepEqual(await connectManager({ ...scram, sslmode: "disable" }), { encrypted: false });
  const refused = await connectManager({ ...scram, password: "wrong" });
  assert.deepEqual(refused, { code: "CONNECTION_REJECTED", state: "28P01" });
  const unbound = await connectManager({ ...scram, channelBinding: "require" });
  assert.deepEqual(unbound, { code: "CONNECTION_FAILED" });
});

test("allow retries with TLS if the server requires it; no other mode retries", async () => {
  const encrypted = { user: "encrypted", password };
  await expectOutcome({ ...encrypted, sslmode: "disable" }, noEntry);
  for (const sslmode of modes.slice(1)) await expectOutcome({ ...encrypted, sslmode }, { encrypted: true });
  const plain = { user: "plain", password };
  for (const sslmode of modes.slice(0, 2)) await expectOutcome({ ...plain, sslmode }, { encrypted: false });
  for (const sslmode of modes.slice(2)) await expectOutcome({ ...plain, sslmode }, noEntry);
});

test("passwords are sent by each method that a server may request", async () => {
  for (const user of ["scram", "hashed", "cleartext"]) {
    await expectOutcome({ user, password }, { encrypted: false });
    await expectOutcome({ user, password, sslmode: "require" }, { encrypted: true });
    const wrong = { code: "CONNECTION_REJECTED", state: "28P01" };
    await expectOutcome({ user, password: "wrong" }, wrong);
  }
});

test("channel binding is required, preferred or disabled as the target says", async () => {
  const scram = { user: "scram", password };
  const failed = { code: "CONNECTION_FAILED" };
  for (const channelBinding of ["require", "prefer", "disable"] as const) {
    await expectOutcome({ ...scram, channelBinding, sslmode: "require" }, { encrypted: true });
    const plain = channelBinding === "require" ? failed : { encrypted: false };
    await expectOutcome({ ...scram, channelBinding, sslmode: "disable" }, plain);
  }
  for (const user of ["hashed", "cleartext", "trusted"]) {
    await expectOutcome({ user, password, channelBinding: "require", sslmode: "require" }, failed);
  }
});

test("only the accepted authentication methods are used", async () => {
  const failed = { code: "CONNECTION_FAILED" };
  const authMethods = new Set(["scram-sha-256"] as const);
  await expectOutcome({ user: "scram", password, authMethods }, { encrypted: false });
  await expectOutcome({ user: "cleartext", password, authMethods }, failed);
  await expectOutcome({ user: "trusted", authMethods }, failed);
});

test("TLS can begin at once, in the given range of versions and with a revocation list", async () => {
  const sslmode = "verify-ca";
  const sslrootcert = server.authority.certificate;
  await expectOutcome({ sslmode: "require", tls: { direct: true } }, { encrypted: true });
  await expectOutcome({ sslmode: "require", tls: { maxVersion: "TLSv1.2" } }, { encrypted: true });
  await expectOutcome({ sslmode, sslrootcert, tls: { crl: "/no/such/list" } }, { code: "CONNECTION_FAILED" });
});

test("options reach the server, which prefers those of pg-task itself", async () => {
  const target = { ...base, options: "-c work_mem=3MB -c search_path=elsewhere" };
  const client = await database.connectClient(target, { applicationName });
  const shown = "SELECT current_setting('work_mem') || ' ' || current_setting('search_path') AS settings";
  const { rows } = await client.query<{ settings: string }>(shown);
  assert.equal(rows[0]?.settings, "3MB pg_catalog, pg_temp");
  await client.end();
});

test("the error for a missing password says where to give it", async () => {
  const options = { applicationName, startup: buildStartup({}), messageLimit: () => 1 << 16 };
  await assert.rejects(openProtocolConnection({ ...base, user: "scram" }, options), {
    code: "CONNECTION_REJECTED",
    message: /asks for a password, and none was given .*PGPASSWORD/,
  });
});

test("verify-ca and verify-full check the issuer, verify-full also the name", async () => {
  const sslrootcert = server.authority.certificate;
  const failed = { code: "CONNECTION_FAILED" };
  for (const sslmode of ["verify-ca", "verify-full"] as const) {
    await expectOutcome({ sslmode, sslrootcert }, { encrypted: true });
    await expectOutcome({ sslmode, sslrootcert: stranger.certificate }, failed);
    await expectOutcome({ sslmode }, failed);
  }
  // This address leads to the same machine, but is not the name in the certificate.
  const elsewhere = { host: "0.0.0.0", sslrootcert };
  await expectOutcome({ ...elsewhere, sslmode: "verify-ca" }, { encrypted: true });
  await expectOutcome({ ...elsewhere, sslmode: "verify-full" }, failed);
});

test("a certificate error names the problem and the option", async () => {
  const target = { ...base, sslmode: "verify-full" } as const;
  const connect = (more: object) => database.connectClient({ ...target, ...more }, { applicationName });
  await assert.rejects(connect({}), {
    code: "CONNECTION_FAILED",
    message: /certificate is not trusted: .* \(sslrootcert names/,
  });
  const missing = { sslrootcert: "/no/such/file" };
  await assert.rejects(connect(missing), {
    code: "CONNECTION_FAILED",
    message: /could not read root certificate file "\/no\/such\/file": no such file or folder \(ENOENT\)/,
  });
  await expectOutcome({ ...target, ...missing }, { code: "CONNECTION_FAILED" });
});

test("a client certificate authenticates the user", async () => {
  const { certificate, key } = server.client;
  const open = join(server.folder, "open.key");
  await copyFile(key, open);
  await chmod(open, 0o644);
  for (const sslkey of [key, open]) {
    const identity = { user: "certified", sslcert: certificate, sslkey };
    await expectOutcome({ ...identity, sslmode: "require" }, { encrypted: true });
  }
  await expectOutcome({ user: "certified", sslmode: "require" }, noEntry);
});

test("only prefer uses a server without TLS", async () => {
  await server.admin.query("ALTER SYSTEM SET ssl = off");
  await server.admin.query("SELECT pg_reload_conf()");
  after(async () => {
    await server.admin.query("ALTER SYSTEM SET ssl = on");
    await server.admin.query("SELECT pg_reload_conf()");
  });
  const prefer = { ...base, sslmode: "prefer" } as const;
  while (!isDeepStrictEqual(await connectManager(prefer), { encrypted: false })) continue;
  await expectOutcome({ sslmode: "prefer" }, { encrypted: false });
  await expectOutcome({ sslmode: "require" }, { code: "CONNECTION_FAILED" });
});

test("a missing or silent server is a failed connection", async () => {
  const port = await startRawServer(() => {});
  const failed = { code: "CONNECTION_FAILED" };
  for (const sslmode of ["disable", "prefer"] as const) {
    await expectOutcome({ port, connectTimeoutMs: 100, sslmode }, failed);
    await expectOutcome({ port: 1, sslmode }, failed);
    await expectOutcome({ host: "/no/such/folder", sslmode }, failed);
  }
});
