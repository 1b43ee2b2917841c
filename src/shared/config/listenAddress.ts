/** `HOST:PORT`, `[IPv6]:PORT`, `:PORT` with ports from 0 to 65535, or nothing. */
export const listenPattern =
  /^$|^(\[[0-9A-Fa-f:.]+\]|[^\s:/[\]]*):(\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])$/;

/** What stands in place of an address with the embedded server: any one on loopback. */
export const listenAnywhere = "auto";

/** Where to listen. */
export interface ListenAddress {
  /** Name or address without brackets; empty is every address of the machine. */
  readonly host: string;
  /** 0 is a free one. */
  readonly port: number;
}

/** Tried first where any address on loopback will do. */
const usualPort = 8765;

/** The places to try one after the other for what `pg_http.listen` says; none for off. */
export function listenAddresses(text: string): ListenAddress[] {
  if (text === listenAnywhere) {
    return [usualPort, 0].map((port) => ({ host: "127.0.0.1", port }));
  }
  const address = parseListen(text);
  return address === null ? [] : [address];
}

/** The one address that a text names; null for none. */
export function parseListen(text: string): ListenAddress | null {
  const [, host, port] = listenPattern.exec(text) ?? [];
  if (host === undefined || port === undefined) return null;
  return { host: host.replace(/^\[(.*)\]$/, "$1"), port: Number(port) };
}

/** Whether only this machine can reach that host; the empty one is all addresses. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host);
}
