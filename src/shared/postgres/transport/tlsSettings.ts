import type { SslMode } from "../../config/types.js";

/** What is asked of the server before anything else. */
export type Encryption = "none" | "ifOffered" | "required";

/** How a connection is encrypted, and who is believed. */
export interface Security {
  readonly mode: SslMode;
  /** TLS from the first byte on. */
  readonly direct: boolean;
  /** Those of SSL_CERT_FILE or, without it, of Node; always those of Node; a file's. */
  readonly roots: { readonly kind: "system" | "node" } | { readonly kind: "file"; path: string };
  readonly revoked: string | null;
  readonly certificate: string | null;
  readonly key: string | null;
  readonly keyPassword: string | null;
  /** Whether others on this machine must not be able to read it. */
  readonly keyMustBePrivate: boolean;
  /** Whether the server's name is sent in clear. */
  readonly named: boolean;
  readonly oldest: TlsVersion;
  readonly newest: TlsVersion | null;
}

export const tlsVersions = ["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"] as const;
export type TlsVersion = (typeof tlsVersions)[number];
