import { omitUndefined } from "../../omitUndefined.js";
import type { AuthMethod, ChannelBinding } from "../auth/credentials.js";
import type { SocketAddress } from "../transport/socketOptions.js";
import type { SslMode } from "../transport/sslMode.js";
import type { TlsSettings } from "../transport/socketOptions.js";

export const sessionAttributes = ["any", "read-write", "read-only", "primary", "standby", "prefer-standby"] as const;
export type SessionAttributes = (typeof sessionAttributes)[number];

/** pg-task writes to its server, so it must not be a standby. */
export const writableAttributes = ["any", "read-write", "primary"] as const satisfies readonly SessionAttributes[];

/** Where one server listens, and the password for this server. */
export interface TargetServer {
  /** Host name, IP address, or absolute path of the directory of a Unix-domain socket. */
  readonly host: string;
  /** Missing if `host` must be resolved. */
  readonly address?: string;
  readonly port: number;
  /** The password that was given, or that the password file contained when the configuration was read. */
  readonly password?: string;
}

/** Contains a secret: log only the result of `describeTarget`. */
export interface ConnectionTarget extends TargetServer {
  readonly otherServers?: readonly TargetServer[];
  /** The password file, which is read at each attempt to connect. Missing if the password was given. */
  readonly passwordFile?: string;
  /** Where the passwords of other users are if this one's was given. */
  readonly othersPasswordFile?: string;
  readonly sessionAttributes?: SessionAttributes;
  readonly loadBalance?: true;
  readonly database: string;
  readonly user: string;
  readonly sslmode: SslMode;
  /** Path of the file with the trusted root certificates. If it is missing, those of the system are trusted. */
  readonly sslrootcert?: string;
  readonly sslcert?: string;
  readonly sslkey?: string;
  readonly tls?: Partial<
    Pick<TlsSettings, "direct" | "crl" | "keyPassword" | "keyMustBePrivate" | "sni" | "minVersion" | "maxVersion">
  >;
  readonly channelBinding?: ChannelBinding;
  /** If they are missing, any method is accepted. */
  readonly authMethods?: ReadonlySet<AuthMethod>;
  /** Idle time before TCP keepalive probes, in ms. 0 means the system's default, null no probes. */
  readonly keepAliveMs?: number | null;
  readonly options?: string;
  /** Time limit for connecting, in ms; 0 means no limit. */
  readonly connectTimeoutMs: number;
}

export function serversOf(target: ConnectionTarget): readonly [TargetServer, ...TargetServer[]] {
  const { host, address, port, password, otherServers = [] } = target;
  return [{ host, port, ...omitUndefined({ address, password }) }, ...otherServers];
}

type Servers = Pick<ConnectionTarget, keyof TargetServer | "otherServers">;

export function withServers<T extends ConnectionTarget>(
  target: T,
  [first, ...others]: readonly [TargetServer, ...TargetServer[]],
): Omit<T, keyof Servers> & Servers {
  const { otherServers: _, host: __, address: ___, port: ____, password: _____, ...rest } = target;
  return { ...rest, ...first, ...(others.length > 0 ? { otherServers: others } : {}) };
}

export const onlyServer = <T extends ConnectionTarget>(
  target: T,
  server: TargetServer,
): Omit<T, keyof Servers> & Servers => withServers(target, [server]);

/** Whether the two targets have a server in common. All servers of one target hold the same data. */
export function shareServer(a: ConnectionTarget, b: ConnectionTarget): boolean {
  const servers = new Set(serversOf(a).map(serverLabel));
  return serversOf(b).some((server) => servers.has(serverLabel(server)));
}

export function serverLabel({ host, port }: Pick<TargetServer, "host" | "port">): string {
  return host.startsWith("/") ? `${host}:${port}` : `${bracketed(host)}:${port}`;
}

const bracketed = (host: string): string => (host.includes(":") ? `[${host}]` : host);

/** Returns the target as a URL without its password. */
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
