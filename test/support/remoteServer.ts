import { chmod, chown, copyFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after } from "node:test";
import { type Client } from "../../src/shared/postgres/client.js";
import { Authority, type Certificate } from "./certificates.js";
import { start } from "./embedded.js";
import { temporaryFolder } from "./temporaryFolder.js";
import { connectTo } from "./connectTo.js";

const roles = {
  scram: "scram-sha-256",
  hashed: "md5",
  cleartext: "password",
  trusted: "trust",
} as const;

/** A second server, with TLS, for remote tasks. */
export interface RemoteTestServer {
  readonly port: number;
  readonly admin: Client;
  readonly authority: Authority;
  /** The client certificate of the role "certified". */
  readonly client: Certificate;
  /** The folder that contains the server's data and the certificates. */
  readonly folder: string;
}

/** The password of every role that has one. */
export const password = "it's a \\ secret";

const hba = `
host all postgres 127.0.0.1/32 trust
hostssl all certified 127.0.0.1/32 cert
hostssl all encrypted 127.0.0.1/32 scram-sha-256
host all nobody 127.0.0.1/32 ident
hostnossl all plain 127.0.0.1/32 scram-sha-256
${Object.entries(roles)
  .map(([role, method]) => `host all ${role} 127.0.0.1/32 ${method}`)
  .join("\n")}
`;

/** Starts the server, with the roles scram, hashed, cleartext, trusted, certified, encrypted and plain. */
export async function startRemoteServer(): Promise<RemoteTestServer> {
  const folder = await temporaryFolder();
  const authority = await Authority.create(folder, "authority");
  const server = await authority.issue("server", "DNS:localhost,IP:127.0.0.1");
  const client = await authority.issue("certified");
  const { port, dataDirectory } = await start({ dataDirectory: join(folder, "data") });
  await Promise.all([
    installFile(authority.certificate, dataDirectory, "root.crt"),
    installFile(server.certificate, dataDirectory, "server.crt"),
    installFile(server.key, dataDirectory, "server.key"),
    writeFile(join(dataDirectory, "pg_hba.conf"), hba),
  ]);
  const target = { host: "127.0.0.1", port, user: "postgres", database: "postgres" };
  const admin = await connectTo({ ...target, sslmode: "disable", connectTimeoutMs: 10_000 });
  after(() => admin.end());
  for (const role of [...Object.keys(roles), "certified", "encrypted", "plain"]) {
    const encryption = role === "hashed" ? "md5" : "scram-sha-256";
    await admin.query(`SET password_encryption = '${encryption}'`);
    const quoted = password.replaceAll("'", "''");
    await admin.query(`SET standard_conforming_strings = on`);
    await admin.query(`CREATE ROLE ${role} LOGIN PASSWORD '${quoted}'`);
  }
  await admin.query("ALTER SYSTEM SET ssl_ca_file = 'root.crt'");
  await admin.query("ALTER SYSTEM SET ssl = on");
  await admin.query("SELECT pg_reload_conf()");
  return { port, admin, authority, client, folder };
}

/** Copies a file into the data folder. The copy belongs to the server's user. */
async function installFile(file: string, dataDirectory: string, name: string): Promise<void> {
  const { uid, gid } = await stat(dataDirectory);
  const copy = join(dataDirectory, name);
  await copyFile(file, copy);
  await chown(copy, uid, gid);
  await chmod(copy, 0o600);
}
