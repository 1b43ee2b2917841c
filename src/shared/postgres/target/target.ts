import { omitUndefined } from "../../omitUndefined.js";
import type { AuthMethod, ChannelBinding } from "../auth/credentials.js";
import type { SocketAddress } from "../transport/socketOptions.js";
import type { SslMode } from "../transport/sslMode.js";
import type { TlsSettings } from "../transport/socketOptions.js";

/** The values of libpq's `target_session_attrs`. */
export const sessionAttributes = ["any", "read-write", "read-only", "primary", "standby", "prefer-standby"] as const;
export type SessionAttributes = (typeof sessionAttributes)[number];

/** The session attributes with which pg-task can work. It writes to its server, so the server must not be a standby. */
export const writableAttributes = ["any", "read-write", "primary"] as const satisfies readonly SessionAttributes[];

/** Where one server listens, and the password for this server. */
export interface TargetServer {
  /** Host name, IP address, or absolute path of the directory of a Unix-domain socket. */
  readonly host: string;
  /** The IP address that was given, or to which `host` was resolved. If it is missing, `host` must be resolved. */
  readonly address?: string;
  readonly port: number;
  /** The password that was given, or that the password file contained when the configuration was read. */
  readonly password?: string;
}

/**
 * Everything that is needed to open a connection. Contains a secret: log only the result of `describeTarget`, never the
 * target itself.
 */
export interface ConnectionTarget extends TargetServer {
  /** The servers to try after the first one, in this order. Missing if there is only one server. */
  readonly otherServers?: readonly TargetServer[];
  /**
   * Path of the password file, which is read at each attempt to connect. Missing if the password was
   * given. The file need not exist.
   */
  readonly passwordFile?: string;
  /** Which servers are acceptable. If it is missing, any server is. */
  readonly sessionAttributes?: SessionAttributes;
  /** Whether the servers and their addresses are tried in a random order. */
  readonly loadBalance?: true;
  readonly database: string;
  readonly user: string;
  readonly sslmode: SslMode;
  /** Path of the file with the trusted root certificates. If it is missing, those of the system are trusted. */
  readonly sslrootcert?: string;
  /** Path of the client's certificate. */
  readonly sslcert?: string;
  /** Path of the private key that belongs to the client's certificate. */
  readonly sslkey?: string;
  /** Further settings of TLS, where they are not the default. */
  readonly tls?: Partial<
    Pick<TlsSettings, "direct" | "crl" | "keyPassword" | "keyMustBePrivate" | "sni" | "minVersion" | "maxVersion">
  >;
  /** By default, `prefer`. */
  readonly channelBinding?: ChannelBinding;
  /** The accepted authentication methods. If they are missing, any method is accepted. */
  readonly authMethods?: ReadonlySet<AuthMethod>;
  /**
   * Idle time after which TCP keepalive probes the connection, in ms. 0 means the operating system's default, and null
   * that the connection is not probed.
   */
  readonly keepAliveMs?: number | null;
  /** Command-line options for the session, such as `-c work_mem=8MB`. */
  readonly options?: string;
  /** Time limit for connecting, in ms; 0 means no limit. */
  readonly connectTimeoutMs: number;
}

/** Returns all servers of the target, in the order in which they are configured. */
export function serversOf(target: ConnectionTarget): readonly [TargetServer, ...TargetServer[]] {
  const { host, address, port, password, otherServers = [] } = target;
  return [{ host, port, ...omitUndefined({ address, password }) }, ...otherServers];
}

interface Servers extends TargetServer {
  readonly otherServers?: readonly TargetServer[];
}

/** Returns the target with these servers instead of its own. */
export function withServers<T extends ConnectionTarget>(
  target: T,
  [first, ...others]: readonly [TargetServer, ...TargetServer[]],
): Omit<T, keyof Servers> & Servers {
  const { otherServers: _, host: __, address: ___, port: ____, password: _____, ...rest } = target;
  return { ...rest, ...first, ...(others.length > 0 ? { otherServers: others } : {}) };
}

/** Returns the target with only this server. */
export const onlyServer = <T extends ConnectionTarget>(
  target: T,
  server: TargetServer,
): Omit<T, keyof Servers> & Servers => withServers(target, [server]);

/** Whether the two targets have a server in common. All servers of one target hold the same data. */
export function shareServer(a: ConnectionTarget, b: ConnectionTarget): boolean {
  const servers = new Set(serversOf(a).map(serverLabel));
  return serversOf(b).some((server) => servers.has(serverLabel(server)));
}

/** Returns `HOST:PORT`, or the path of a Unix-domain socket's directory. */
export function serverLabel({ host, port }: Pick<TargetServer, "host" | "port">): string {
  return host.startsWith("/") ? `${host}:${port}` : `${bracketed(host)}:${port}`;
}

const bracketed = (host: string): string => (host.includes(":") ? `[${host}]` : host);

/** Returns the target as a URL without its password, for logs and errors. */
export function describeTarget(target: ConnectionTarget): string {
  const user = encodeURIComponent(target.user);
  const database = encodeURIComponent(target.database);
  const servers = serversOf(target);
  const attributes = servers.length > 1 ? target.sessionAttributes : undefined;
  const wanted = attributes === undefined ? [] : [`target_session_attrs=${attributes}`];
  if (servers.some(({ host }) => host.startsWith("/"))) {
    const list = [
      `host=${servers.map(({ host }) => host).join(",")}`,
      `port=${servers.map(({ port }) => port).join(",")}`,
      ...wanted,
    ];
    return `postgresql://${user}@/${database}?${list.join("&")}`;
  }
  const authority = servers.map(serverLabel).join(",");
  return `postgresql://${user}@${authority}/${database}${wanted.map((text) => `?${text}`).join("")}`;
}

/** Returns the address to connect to. A host name that is not resolved yet is resolved by Node. */
export function socketAddress({ host, address, port }: TargetServer): SocketAddress {
  return { host, address: host.startsWith("/") ? null : (address ?? host), port };
}

export function tlsSettings({ sslmode, sslrootcert, sslcert, sslkey, tls }: ConnectionTarget): TlsSettings {
  return {
    mode: sslmode,
    roots: sslrootcert ?? null,
    certificate: sslcert ?? null,
    key: sslkey ?? null,
    direct: false,
    crl: null,
    keyPassword: null,
    keyMustBePrivate: false,
    sni: true,
    minVersion: "TLSv1.2",
    maxVersion: null,
    ...tls,
  };
}
