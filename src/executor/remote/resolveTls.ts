import { existsSync } from "node:fs";
import { ConnectionStringError } from "../../shared/postgres/errors.js";
import {
  chooseSslMode,
  findUserFile,
  sslModes,
  userFilePath,
  withRootFile,
} from "../../shared/postgres/transport/sslMode.js";
import { tlsVersions, type TlsSettings } from "../../shared/postgres/transport/socketOptions.js";
import type { RemoteContext, ConnectionOptions } from "./connectionOptions.js";

/**
 * Applies libpq's rules for `sslmode` and the certificate files.
 *
 * @throws ConnectionStringError
 */
export function resolveTls(options: ConnectionOptions, { env, isSuperuser }: RemoteContext, host: string): TlsSettings {
  const mode = chooseSslMode(options.choice("sslmode", sslModes), options.text("sslrootcert"));
  const roots = resolveRoots(options, env);
  const direct = options.choice("sslnegotiation", ["postgres", "direct"]) === "direct";
  if (direct && ["disable", "allow", "prefer"].includes(mode)) {
    throw new ConnectionStringError(
      `weak sslmode "${mode}" may not be used with sslnegotiation=direct (use "require", "verify-ca", or "verify-full")`,
    );
  }
  if (mode === "verify-full" && host === "") {
    throw new ConnectionStringError("host name must be specified for a verified SSL connection");
  }
  const certificateMode = options.choice("sslcertmode", ["disable", "allow", "require"]) ?? "allow";
  if (certificateMode === "require") {
    throw new ConnectionStringError('sslcertmode "require" is not supported');
  }
  const mayUseCertificate = isSuperuser && certificateMode === "allow";
  const file = (keyword: "sslcert" | "sslkey" | "sslcrl", name: string): string | null =>
    options.text(keyword) ?? findUserFile(env, name) ?? null;
  const certificate = mayUseCertificate ? file("sslcert", "postgresql.crt") : null;
  return {
    mode: withRootFile(mode, roots.kind === "file"),
    direct,
    roots,
    crl: file("sslcrl", "root.crl"),
    certificate,
    key: certificate === null ? null : file("sslkey", "postgresql.key"),
    keyMustBePrivate: true,
    keyPassword: options.text("sslpassword") ?? null,
    sni: options.text("sslsni") !== "0",
    ...tlsRange(options),
  };
}

function resolveRoots(options: ConnectionOptions, env: NodeJS.ProcessEnv): TlsSettings["roots"] {
  const path = options.text("sslrootcert");
  const verifies = options.text("sslmode")?.startsWith("verify") === true;
  if (path === "system") return { kind: "system" };
  if (path !== undefined) {
    return verifies || existsSync(path) ? { kind: "file", path } : { kind: "node" };
  }
  const defaultFile = findUserFile(env, "root.crt");
  if (defaultFile !== undefined) return { kind: "file", path: defaultFile };
  if (!verifies) return { kind: "node" };
  // The sslmode comes from the manager's connection, which verifies certificates without a root certificate file.
  if (!options.given.has("sslmode")) return { kind: "system" };
  throw new ConnectionStringError(
    `root certificate file "${userFilePath(env, "root.crt")}" does not exist\nEither provide the file, use the system's trusted roots with sslrootcert=system, or change sslmode to disable server certificate verification.`,
  );
}

function tlsRange(options: ConnectionOptions): Pick<TlsSettings, "minVersion" | "maxVersion"> {
  const minVersion = options.choice("ssl_min_protocol_version", tlsVersions) ?? "TLSv1.2";
  const maxVersion = options.choice("ssl_max_protocol_version", tlsVersions) ?? null;
  if (maxVersion !== null && tlsVersions.indexOf(maxVersion) < tlsVersions.indexOf(minVersion)) {
    throw new ConnectionStringError("invalid SSL protocol version range");
  }
  return { minVersion, maxVersion };
}
