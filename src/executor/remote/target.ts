import type { SslMode } from "../../shared/config/types.js";

/** One of the servers that a connection string names. */
export interface RemoteServer {
  /** Name, address, or the path of a socket's folder; empty when only an address is given. */
  readonly host: string;
  /** Where to connect instead of looking the name up, null when it is looked up. */
  readonly address: string | null;
  readonly port: number;
  readonly password: string | null;
}

/** How a connection is encrypted, and who is believed. */
export interface RemoteSecurity {
  readonly mode: SslMode;
  /** TLS from the first byte on. */
  readonly direct: boolean;
  /** Those that come with Node or stand in SSL_CERT_FILE, or a file's, or none. */
  readonly roots: { readonly kind: "system" | "none" } | { readonly kind: "file"; path: string };
  readonly revoked: string | null;
  readonly certificate: string | null;
  readonly key: string | null;
  readonly keyPassword: string | null;
  /** Whether the server's name is sent in clear. */
  readonly named: boolean;
  readonly oldest: TlsVersion;
  readonly newest: TlsVersion | null;
}

export const tlsVersions = ["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"] as const;
export type TlsVersion = (typeof tlsVersions)[number];

export const sessionAttributes = [
  "any",
  "read-write",
  "read-only",
  "primary",
  "standby",
  "prefer-standby",
] as const;
export type SessionAttributes = (typeof sessionAttributes)[number];

export const channelBindings = ["disable", "prefer", "require"] as const;
export type ChannelBinding = (typeof channelBindings)[number];

export const authMethods = ["password", "md5", "gss", "sspi", "scram-sha-256", "none"] as const;
export type AuthMethod = (typeof authMethods)[number];

/** Everything needed to open a remote connection; holds secrets, so never log it (see `describe`). */
export interface RemoteTarget {
  /** In the order in which they are tried. */
  readonly servers: readonly RemoteServer[];
  readonly database: string;
  readonly user: string;
  readonly security: RemoteSecurity;
  /** For each address, in ms; 0 is without limit. */
  readonly connectTimeoutMs: number;
  /** What the session is to be called, null when that is left to us. */
  readonly applicationName: string | null;
  /** More for the startup packet. */
  readonly startup: Readonly<Record<string, string>>;
  readonly sessionAttributes: SessionAttributes;
  readonly channelBinding: ChannelBinding;
  /** How the server may ask who we are; null is any way. */
  readonly authMethods: ReadonlySet<AuthMethod> | null;
  /** Whether the server has to ask for the password. */
  readonly passwordRequired: boolean;
  /** Idle time in ms after which the connection is probed, null for never; 0 is the system's own. */
  readonly keepAliveMs: number | null;
}

/** Names a target in the log: never with a secret. */
export function describe({ servers, user, database }: RemoteTarget): string {
  const places = servers.map(({ host, address, port }) => `${host || address}:${port}`).join(",");
  return `${user}@${places}/${database}`;
}
