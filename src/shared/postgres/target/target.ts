import type { SocketAddress } from "../transport/socketOptions.js";
import type { SslMode } from "../transport/sslMode.js";
import type { TlsSettings } from "../transport/socketOptions.js";

/**
 * Everything that is needed to open a connection. Contains a secret: log only the result of `describeTarget`, never the
 * target itself.
 */
export interface ConnectionTarget {
  /** Host name, IP address, or absolute path of the directory of a Unix-domain socket. */
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
  readonly password?: string;
  readonly sslmode: SslMode;
  /** Path of the file with the trusted root certificates. If it is missing, Node's bundled certificates are trusted. */
  readonly sslrootcert?: string;
  /** Path of the client's certificate. */
  readonly sslcert?: string;
  /** Path of the private key that belongs to the client's certificate. */
  readonly sslkey?: string;
  /** Time limit for connecting, in ms; 0 means no limit. */
  readonly connectTimeoutMs: number;
}

/** Returns the target as a URL without its password, for logs and errors. */
export function describeTarget(target: ConnectionTarget): string {
  const user = encodeURIComponent(target.user);
  const database = encodeURIComponent(target.database);
  if (target.host.startsWith("/")) {
    return `postgresql://${user}@/${database}?host=${target.host}&port=${target.port}`;
  }
  const host = target.host.includes(":") ? `[${target.host}]` : target.host;
  return `postgresql://${user}@${host}:${target.port}/${database}`;
}

/** Returns the address to connect to. Node resolves a host name and tries all addresses that the name has. */
export function socketAddress({ host, port }: ConnectionTarget): SocketAddress {
  return { host, address: host.startsWith("/") ? null : host, port };
}

export function tlsSettings(target: ConnectionTarget): TlsSettings {
  const { sslmode, sslrootcert, sslcert = null, sslkey = null } = target;
  return {
    mode: sslmode,
    direct: false,
    roots: sslrootcert === undefined ? { kind: "node" } : { kind: "file", path: sslrootcert },
    crl: null,
    certificate: sslcert,
    key: sslkey,
    keyPassword: null,
    keyMustBePrivate: false,
    sni: true,
    minVersion: "TLSv1.2",
    maxVersion: null,
  };
}
