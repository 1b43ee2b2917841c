import assert from "node:assert/strict";
import { chmod, copyFile } from "node:fs/promises";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { after, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { openProtocolConnection } from "../../../../src/shared/postgres/openProtocolConnection.js";
import type { ConnectionTarget, SslMode } from "../../../../src/shared/config/types.js";
import * as database from "../../../../src/shared/postgres/client.js";
import { PgTaskError } from "../../../../src/shared/errors.js";
import { startupWith } from "../../../../src/shared/postgres/startupOptions.js";
import { Authority } from "../../../support/certificates.js";
import { password, startRemoteServer } from "../../../support/remoteServer.js";

const applicationName = "test";
const tls = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

/** What came of a connection: whether it is encrypted, or why there is none. */
type Outcome = { readonly encrypted: boolean } | { readonly code: string; readonly state?: string };

const refusal = (error: unknown): Outcome => {
  if (!(error instanceof PgTaskError)) throw error;
  assert.ok(!error.message.includes(password), "no message holds the password");
  const { code, sqlState } = error;
  return { code, ...(sqlState === undefined ? {} : { state: sqlState }) };
};

/** How a session comes out. */
async function asSession(target: ConnectionTarget): Promise<Outcome> {
  try {
    const options = { applicationName, startup: startupWith({}), messageLimit: () => 1 << 16 };
    const wire = await openProtocolConnection(target, options);
    const { rows } = await wire.ask(tls);
    await wire.close();
    return { encrypted: rows[0]?.[0] === "t" };
  } catch (error) {
    return refusal(error);
  }
}

/** How a manager's own connection comes out. */
async function asManager(target: ConnectionTarget): Promise<Outcome> {
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

/** Both come out so. */
async function comesOut(more: Partial<ConnectionTarget>, expected: Outcome): Promise<void> {
  const target = { ...base, ...more };
  const outcomes = { session: await asSession(target), manager: await asManager(target) };
  assert.deepEqual(outcomes, { session: expected, manager: expected }, JSON.stringify(more));
}

const modes: readonly SslMode[] = ["disable", "allow", "prefer", "require"];
const noEntry = { code: "CONNECTION_REJECTED", state: "28000" };

test("a session is encrypted as sslmode says", async () => {
  for (const sslmode of modes) {
    const encrypted = sslmode === "prefer" || sslmode === "require";
    await comesOut({ sslmode }, { encrypted });
  }
});

test("allow goes on with TLS where the server wants it; nothing else goes another way", async () => {
  const encrypted = { user: "encrypted", password };
  await comesOut({ ...encrypted, sslmode: "disable" }, noEntry);
  for (const sslmode of modes.slice(1))
    await comesOut({ ...encrypted, sslmode }, { encrypted: true });
  const plain = { user: "plain", password };
  for (const sslmode of modes.slice(0, 2))
    await comesOut({ ...plain, sslmode }, { encrypted: false });
  for (const sslmode of modes.slice(2)) await comesOut({ ...plain, sslmode }, noEntry);
});

test("passwords are given in each way that a server may ask for them", async () => {
  for (const user of ["scram", "hashed", "cleartext"]) {
    await comesOut({ user, password }, { encrypted: false });
    await comesOut({ user, password, sslmode: "require" }, { encrypted: true });
    const wrong = { code: "CONNECTION_REJECTED", state: "28P01" };
    await comesOut({ user, password: "wrong" }, wrong);
  }
});

test("where a password is missing the message says where it could be given", async () => {
  const options = { applicationName, startup: startupWith({}), messageLimit: () => 1 << 16 };
  await assert.rejects(openProtocolConnection({ ...base, user: "scram" }, options), {
    code: "CONNECTION_REJECTED",
    message: /asks for a password, and none was given .*PGPASSWORD/,
  });
});

test("verify-ca and verify-full look who signed, and verify-full whose name it is", async () => {
  const sslrootcert = server.authority.certificate;
  const failed = { code: "CONNECTION_FAILED" };
  for (const sslmode of ["verify-ca", "verify-full"] as const) {
    await comesOut({ sslmode, sslrootcert }, { encrypted: true });
    await comesOut({ sslmode, sslrootcert: stranger.certificate }, failed);
    await comesOut({ sslmode }, failed);
  }
  // This machine too, but not what the certificate says.
  const elsewhere = { host: "0.0.0.0", sslrootcert };
  await comesOut({ ...elsewhere, sslmode: "verify-ca" }, { encrypted: true });
  await comesOut({ ...elsewhere, sslmode: "verify-full" }, failed);
});

test("what is wrong with a certificate is said, and by which word it is given", async () => {
  const target = { ...base, sslmode: "verify-full" } as const;
  const asked = (more: object) =>
    database.connectClient({ ...target, ...more }, { applicationName });
  await assert.rejects(asked({}), {
    code: "CONNECTION_FAILED",
    message: /certificate is not trusted: .* \(sslrootcert names/,
  });
  const missing = { sslrootcert: "/no/such/file" };
  await assert.rejects(asked(missing), {
    code: "CONNECTION_FAILED",
    message: /sslrootcert "\/no\/such\/file" cannot be read: ENOENT/,
  });
  await comesOut({ ...target, ...missing }, { code: "CONNECTION_FAILED" });
});

test("a certificate shows who we are", async () => {
  const { certificate, key } = server.client;
  const open = join(server.folder, "open.key");
  await copyFile(key, open);
  await chmod(open, 0o644);
  for (const sslkey of [key, open]) {
    const identity = { user: "certified", sslcert: certificate, sslkey };
    await comesOut({ ...identity, sslmode: "require" }, { encrypted: true });
  }
  await comesOut({ user: "certified", sslmode: "require" }, noEntry);
});

test("a server that has no TLS is used by prefer only", async () => {
  await server.admin.query("ALTER SYSTEM SET ssl = off");
  await server.admin.query("SELECT pg_reload_conf()");
  after(async () => {
    await server.admin.query("ALTER SYSTEM SET ssl = on");
    await server.admin.query("SELECT pg_reload_conf()");
  });
  const prefer = { ...base, sslmode: "prefer" } as const;
  while (!isDeepStrictEqual(await asManager(prefer), { encrypted: false })) continue;
  await comesOut({ sslmode: "prefer" }, { encrypted: false });
  await comesOut({ sslmode: "require" }, { code: "CONNECTION_FAILED" });
});

test("a server that is not there, or says nothing, is not reached", async () => {
  const silent = createServer();
  const sockets: Socket[] = [];
  silent.on("connection", (socket) => sockets.push(socket));
  silent.listen(0, "127.0.0.1");
  await once(silent, "listening");
  after(() => {
    for (const socket of sockets) socket.destroy();
    silent.close();
  });
  const address = silent.address();
  assert.ok(address !== null && typeof address === "object");
  const failed = { code: "CONNECTION_FAILED" };
  for (const sslmode of ["disable", "prefer"] as const) {
    await comesOut({ port: address.port, connectTimeoutMs: 100, sslmode }, failed);
    await comesOut({ port: 1, sslmode }, failed);
    await comesOut({ host: "/no/such/folder", sslmode }, failed);
  }
});
