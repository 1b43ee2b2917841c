import type { AuthMethod, ChannelBinding } from "../../shared/postgres/auth/credentials.js";
import type { SessionAttributes } from "../../shared/postgres/target/target.js";
import type { TlsSettings } from "../../shared/postgres/transport/socketOptions.js";

/** One of the servers in a connection string. */
export interface RemoteServer {
  /**
   * Host name, IP address, or the path of a socket's directory. Empty if the connection string gives only `hostaddr`.
   */
  readonly host: string;
  /** The IP address (`hostaddr`). Null means that the host name must be resolved. */
  readonly address: string | null;
  readonly port: number;
  readonly password: string | null;
}

/**
 * Everything that is needed to open a remote connection. Contains secrets and must never be logged. Log the result of
 * `describeRemoteTarget` instead.
 */
export interface RemoteTarget {
  /** The servers, in the order in which they are tried. */
  readonly servers: readonly RemoteServer[];
  readonly database: string;
  readonly user: string;
  readonly tls: TlsSettings;
  /** Time limit for connecting to each address, in ms. 0 means no limit. */
  readonly connectTimeoutMs: number;
  /** Null if no application_name is given. */
  readonly applicationName: string | null;
  /** Additional parameters of the startup message. */
  readonly startup: Readonly<Record<string, string>>;
  readonly sessionAttributes: SessionAttributes;
  readonly channelBinding: ChannelBinding;
  /** The accepted authentication methods. Null means that any method is accepted. */
  readonly authMethods: ReadonlySet<AuthMethod> | null;
  /** Whether connecting must fail if the server does not ask for the password. */
  readonly passwordRequired: boolean;
  /**
   * Idle time after which TCP keepalive probes the connection, in ms. 0 means the operating system's default. Null
   * means that the connection is not probed.
   */
  readonly keepAliveMs: number | null;
}

/** Describes a target for the log, without secrets. */
export function describeRemoteTarget({ servers, user, database }: RemoteTarget): string {
  const addresses = servers.map(({ host, address, port }) => `${host || address}:${port}`).join(",");
  return `${user}@${addresses}/${database}`;
}
