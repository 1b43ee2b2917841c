import { ConnectionStringError } from "../errors.js";
import { mask } from "../../logRedaction.js";
import { isKeyword, type Pair } from "./keywords.js";
import { shownKeyword } from "./mayShow.js";

const prefix = /^postgres(?:ql)?:\/\//;

export function isUri(text: string): boolean {
  return prefix.test(text);
}

export function splitUri(uri: string): { readonly scheme: string; readonly userinfo: string; readonly rest: string } {
  const [scheme = ""] = prefix.exec(uri) ?? [];
  const [userinfo = ""] = /^[^:@/]*(?::[^@/]*)?@/.exec(uri.slice(scheme.length)) ?? [];
  return { scheme, userinfo, rest: uri.slice(scheme.length + userinfo.length) };
}

/**
 * Parses `postgresql://user:password@host:port,host:port/database?key=value&…` as libpq does. `check` is called for the
 * keyword of each parameter, of which messages may show `shown`.
 */
export function parseUri(uri: string, check: (keyword: string, shown: string) => void): Pair[] {
  const pairs: Pair[] = [];
  const add = (keyword: string, text: string): void => {
    if (text !== "") pairs.push([keyword, decode(text)]);
  };
  const { userinfo, rest: all } = splitUri(uri);
  const [user = "", password = ""] = userinfo.slice(0, -1).split(/:(.*)/s);
  add("user", user);
  add("password", password);
  const { hosts, ports, end } = readServers(all, uri);
  let rest = all.slice(end);
  // What looks like a port is probably the beginning of a password that contains a "/".
  if (/[^\d,]/.test(ports) && rest.includes("@")) {
    throw new ConnectionStringError(`invalid integer value "${mask}" for connection option "port"`);
  }
  add("host", hosts);
  add("port", ports);
  if (rest.startsWith("/")) {
    const [database = ""] = /^[^?]*/.exec(rest.slice(1)) ?? [];
    add("dbname", database);
    rest = rest.slice(1 + database.length);
  }
  if (rest !== "") pairs.push(...readParameters(rest.slice(1), check));
  return pairs;
}

/** Reads the hosts and ports, each as a comma-separated list. */
function readServers(
  text: string,
  uri: string,
): { readonly hosts: string; readonly ports: string; readonly end: number } {
  const hosts: string[] = [];
  const ports: string[] = [];
  let position = 0;
  for (;;) {
    const host = text[position] === "[" ? readBracketed(text, position, uri) : readUntil(text, position, /[:/?,]/);
    hosts.push(host.text);
    position = host.end;
    const port = text[position] === ":" ? readUntil(text, position + 1, /[/?,]/) : { text: "", end: position };
    ports.push(port.text);
    position = port.end;
    if (text[position] !== ",") break;
    position += 1;
  }
  return { hosts: hosts.join(","), ports: ports.join(","), end: position };
}

interface Token {
  readonly text: string;
  readonly end: number;
}

function readUntil(text: string, from: number, ending: RegExp): Token {
  const length = text.slice(from).search(ending);
  const end = length === -1 ? text.length : from + length;
  return { text: text.slice(from, end), end };
}

function readBracketed(text: string, from: number, uri: string): Token {
  const close = text.indexOf("]", from);
  if (close === -1) {
    throw new ConnectionStringError(
      `end of string reached when looking for matching "]" in IPv6 host address in URI: "${mask}"`,
    );
  }
  if (close === from + 1) {
    throw new ConnectionStringError(`IPv6 host address may not be empty in URI: "${mask}"`);
  }
  const next = text[close + 1];
  if (next !== undefined && !":/?,".includes(next)) {
    const position = uri.length - text.length + close + 2;
    throw new ConnectionStringError(
      `unexpected character "${next}" at position ${position} in URI (expected ":" or "/"): "${mask}"`,
    );
  }
  return { text: text.slice(from + 1, close), end: close + 1 };
}

function readParameters(text: string, check: (keyword: string, shown: string) => void): Pair[] {
  const pairs: Pair[] = [];
  // What follows a password that contains a "/" and a "?" looks like parameters.
  const mayBeSecret = text.includes("@");
  for (const parameter of text.replace(/&$/, "").split("&")) {
    if (text === "") break;
    const [name = "", value, extra] = parameter.split("=");
    const keyword = decode(name);
    const shown = mayBeSecret ? mask : shownKeyword(keyword, pairs);
    if (value === undefined) {
      throw new ConnectionStringError(
        `missing key/value separator "=" in URI query parameter: "${isKeyword(keyword) ? shown : mask}"`,
      );
    }
    if (extra !== undefined) {
      throw new ConnectionStringError(`extra key/value separator "=" in URI query parameter: "${shown}"`);
    }
    const decoded = decode(value);
    // URLs of the JDBC driver use `ssl=true`.
    if (keyword === "ssl" && decoded === "true") pairs.push(["sslmode", "require"]);
    else {
      check(keyword, shown);
      pairs.push([keyword, decoded]);
    }
  }
  return pairs;
}

/** Decodes percent-encoded text. No message repeats it, because any part of a wrong URI can be a password's. */
export function decode(text: string): string {
  const trimmed = text.replace(/^[ \t\n\v\f\r]+|[ \t\n\v\f\r]+$/g, "");
  if (/[ \t\n\v\f\r]/.test(trimmed)) {
    throw new ConnectionStringError(`unexpected spaces found in "${mask}", use percent-encoded spaces (%20) instead`);
  }
  if (/%(?![0-9a-f]{2})/i.test(trimmed)) {
    throw new ConnectionStringError(`invalid percent-encoded token: "${mask}"`);
  }
  if (trimmed.includes("%00")) {
    throw new ConnectionStringError(`forbidden value %00 in percent-encoded value: "${mask}"`);
  }
  return trimmed.replace(/(?:%[0-9a-f]{2})+/gi, (bytes) => Buffer.from(bytes.replaceAll("%", ""), "hex").toString());
}
