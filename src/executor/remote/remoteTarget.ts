import type { AuthMethod, ChannelBinding } from "../../shared/postgres/auth/credentials.js";
import type { Security } from "../../shared/postgres/transport/tlsSettings.js";

/** One of the servers that a connection string names. */
export interface RemoteServer {
  /** Name, address, or the path of a socket's folder; empty when only an address is given. */
  readonly host: string;
  /** Where to connect instead of looking the name up, null when it is looked up. */
  readonly address: string | null;
  readonly port: number;
  readonly password: string | null;
}

export const sessionAttributes = [
  "any",
  "read-write",
  "read-only",
  "primary",
  "standby",
  "prefer-standby",
] as const;
export type SessionAttributes = (typeof sessionAttributes)[number];

/** Everything needed to open a remote connection; holds secrets, so never log it (see `describe`). */
export interface RemoteTarget {
  /** In the order in which they are tried. */
  readonly servers: readonly RemoteServer[];
  readonly database: string;
  readonly user: string;
  readonly security: Security;
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
