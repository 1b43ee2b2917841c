import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { sslModes } from "../../shared/postgres/target/parseUrl.js";
import { ConnectionStringError } from "../../shared/postgres/connectionString/error.js";
import { tlsVersions, type Security } from "../../shared/postgres/transport/tlsSettings.js";
import type { RemoteContext, ConnectionOptions } from "./connectionOptions.js";

/** libpq's rules for sslmode and the files that go with it. @throws ConnectionStringProblem */
export function readSecurity(
  words: ConnectionOptions,
  { env, superuser }: RemoteContext,
  host: string,
): Security {
  const roots = readRoots(words, env);
  const asked = words.choice("sslmode", sslModes);
  const mode = asked ?? (roots.kind === "system" ? "verify-full" : "prefer");
  if (words.said.get("sslrootcert") === "system" && mode !== "verify-full") {
    throw new ConnectionStringError(
      `weak sslmode "${mode}" may not be used with sslrootcert=system (use "verify-full")`,
    );
  }
  const direct = words.choice("sslnegotiation", ["postgres", "direct"]) === "direct";
  if (direct && ["disable", "allow", "prefer"].includes(mode)) {
    throw new ConnectionStringError(
      `weak sslmode "${mode}" may not be used with sslnegotiation=direct (use "require", "verify-ca", or "verify-full")`,
    );
  }
  if (mode === "verify-full" && host === "") {
    throw new ConnectionStringError("host name must be specified for a verified SSL connection");
  }
  const [oldest, newest] = readTlsRange(words);
  const certificates = words.choice("sslcertmode", ["disable", "allow", "require"]) ?? "allow";
  if (certificates === "require") {
    throw new ConnectionStringError('sslcertmode "require" is not supported');
  }
  const identity = superuser && certificates === "allow";
  const certificate = identity ? (words.text("sslcert") ?? inHome(env, "postgresql.crt")) : null;
  const key = words.text("sslkey") ?? inHome(env, "postgresql.key");
  return {
    // With root certificates at hand, who signed is checked even where it need not be.
    mode: mode === "require" && roots.kind === "file" ? "verify-ca" : mode,
    direct,
    roots,
    revoked: words.text("sslcrl") ?? inHome(env, "root.crl"),
    certificate,
    key: certificate === null ? null : key,
    keyMustBePrivate: true,
    keyPassword: words.text("sslpassword") ?? null,
    named: words.text("sslsni") !== "0",
    oldest,
    newest,
  };
}

function readRoots(words: ConnectionOptions, env: NodeJS.ProcessEnv): Security["roots"] {
  const path = words.text("sslrootcert");
  if (path === "system") return { kind: "system" };
  if (path !== undefined) {
    const required = words.text("sslmode")?.startsWith("verify") === true;
    return required || existsSync(path) ? { kind: "file", path } : { kind: "node" };
  }
  const usual = inHome(env, "root.crt");
  if (usual !== null) return { kind: "file", path: usual };
  // Where the manager's own connection verifies without a file, so does this one.
  const inherited = !words.said.has("sslmode");
  const verifies = words.text("sslmode")?.startsWith("verify") === true;
  if (!verifies) return { kind: "node" };
  if (inherited) return { kind: "system" };
  throw new ConnectionStringError(
    `root certificate file "${homeFile(env, "root.crt")}" does not exist\nEither provide the file, use the system's trusted roots with sslrootcert=system, or change sslmode to disable server certificate verification.`,
  );
}

function homeFile(env: NodeJS.ProcessEnv, name: string): string {
  return join(env["HOME"] || homedir(), ".postgresql", name);
}

function inHome(env: NodeJS.ProcessEnv, name: string): string | null {
  const path = homeFile(env, name);
  return existsSync(path) ? path : null;
}

function readTlsRange(words: ConnectionOptions): [Security["oldest"], Security["newest"]] {
  const oldest = words.choice("ssl_min_protocol_version", tlsVersions) ?? "TLSv1.2";
  const newest = words.choice("ssl_max_protocol_version", tlsVersions) ?? null;
  if (newest !== null && tlsVersions.indexOf(newest) < tlsVersions.indexOf(oldest)) {
    throw new ConnectionStringError("invalid SSL protocol version range");
  }
  return [oldest, newest];
}
