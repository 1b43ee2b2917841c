import { BlockList, isIP } from "node:net";

/** Matches `HOST:PORT`, `[IPv6]:PORT` and `:PORT` with ports from 0 to 65535, and the empty string. */
export const listenPattern =
  /^$|^(\[[0-9A-Fa-f:.]+\]|[^\s:/[\]]*):(\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])$/;

export const hostsPattern = /^$|^(\[[0-9A-Fa-f:.]+\]|[^\s,:/@[\]]+)(,(\[[0-9A-Fa-f:.]+\]|[^\s,:/@[\]]+))*$/;

export const basePattern = /^$|^(\/[\w.~-]+)+$/;

export const headerPattern = /^$|^[A-Za-z][\w-]*$/;

/** Of addresses, and of networks such as `10.0.0.0/8`. Null if one of them is neither. */
export function parseNetworks(text: string): BlockList | null {
  const list = new BlockList();
  for (const each of text.split(",")) {
    const [address = "", bits] = each.split("/");
    const version = isIP(address);
    const most = version === 6 ? 128 : 32;
    if (version === 0 || (bits !== undefined && !(/^\d{1,3}$/.test(bits) && Number(bits) <= most))) return null;
    list.addSubnet(address, bits === undefined ? most : Number(bits), version === 6 ? "ipv6" : "ipv4");
  }
  return list;
}

/** The default with an embedded server: port 8765 on loopback, or any free port if 8765 is taken. */
export const listenAnywhere = "auto";

export interface ListenAddress {
  /** Without brackets; empty for all addresses. */
  readonly host: string;
  readonly port: number;
}

const preferredPort = 8765;

/** Returns the addresses to try, in order. None means that the page is off. */
export function listenAddresses(text: string): ListenAddress[] {
  if (text === listenAnywhere) {
    return [preferredPort, 0].map((port) => ({ host: "127.0.0.1", port }));
  }
  const address = parseListen(text);
  return address === null ? [] : [address];
}

export function parseListen(text: string): ListenAddress | null {
  const [, host, port] = listenPattern.exec(text) ?? [];
  if (host === undefined || port === undefined) return null;
  return { host: host.replace(/^\[(.*)\]$/, "$1"), port: Number(port) };
}

export function parseHosts(text: string): string[] {
  if (text === "") return [];
  return text.split(",").map((host) => host.toLowerCase().replace(/^\[(.*)\]$/, "$1"));
}

/** False for an empty host, which means all addresses. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host);
}
