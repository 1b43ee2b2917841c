import type { Encryption, SslMode } from "./sslMode.js";

export const tlsVersions = ["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"] as const;
type TlsVersion = (typeof tlsVersions)[number];

export interface TlsSettings {
  readonly mode: SslMode;
  /** Whether TLS begins at once, without asking the server first (`sslnegotiation=direct`). */
  readonly direct: boolean;
  /** Trusted root certificates; null means the file named by SSL_CERT_FILE, or else Node's bundled ones. */
  readonly roots: string | null;
  readonly crl: string | null;
  readonly certificate: string | null;
  readonly key: string | null;
  readonly keyPassword: string | null;
  /** Whether a key file that other users of this machine can read is refused. */
  readonly keyMustBePrivate: boolean;
  /** Whether the server's name is sent unencrypted (`sslsni`). */
  readonly sni: boolean;
  readonly minVersion: TlsVersion;
  readonly maxVersion: TlsVersion | null;
}

export interface SocketAddress {
  /** The host as configured, which a certificate must match. Empty if only an address is given. */
  readonly host: string;
  /** IP address, or a name that Node resolves; null for a Unix-domain socket in the directory `host`. */
  readonly address: string | null;
  readonly port: number;
}

export interface SocketOptions {
  readonly tls: TlsSettings;
  readonly encryption: Encryption;
  /** Idle time before the first TCP keepalive probe, in ms; 0 means the system's default, null means no keepalive. */
  readonly keepAliveMs: number | null;
  readonly signal: AbortSignal;
}
