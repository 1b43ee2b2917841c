import type { Pair } from "./parseKeyValues.js";
import { ConnectionStringError, hidden } from "./error.js";

const prefix = /^postgres(?:ql)?:\/\//;

export function isUri(text: string): boolean {
  return prefix.test(text);
}

/**
 * Takes `postgresql://user:password@host:port,host:port/database?key=value&…` apart, each part
 * optional and percent-encoded, exactly where libpq does.
 *
 * @param isKnown whether a keyword may stand behind "?"
 * @throws ConnectionStringProblem
 */
export function parseUri(uri: string, isKnown: (keyword: string) => boolean): Pair[] {
  const pairs: Pair[] = [];
  const add = (keyword: string, text: string): void => {
    if (text !== "") pairs.push([keyword, decode(text, keyword === "password" ? hidden : text)]);
  };
  let rest = uri.replace(prefix, "");
  const [found, user, password] = /^([^:@/]*)(?::([^@/]*))?@/.exec(rest) ?? [];
  if (found !== undefined) {
    add("user", user ?? "");
    add("password", password ?? "");
    rest = rest.slice(found.length);
  }
  const { hosts, ports, end } = readServers(rest, uri);
  rest = rest.slice(end);
  // Most likely this is the beginning of a password with a "/" in it.
  if (/[^\d,]/.test(ports) && rest.includes("@")) {
    throw new ConnectionStringError(
      `invalid integer value "${hidden}" for connection option "port"`,
    );
  }
  add("host", hosts);
  add("port", ports);
  if (rest.startsWith("/")) {
    const [database = ""] = /^[^?]*/.exec(rest.slice(1)) ?? [];
    add("dbname", database);
    rest = rest.slice(1 + database.length);
  }
  if (rest !== "") pairs.push(...readParameters(rest.slice(1), isKnown));
  return pairs;
}

/** Hosts and ports, each joined by commas; `end` is where they end. */
function readServers(
  text: string,
  uri: string,
): { readonly hosts: string; readonly ports: string; readonly end: number } {
  const hosts: string[] = [];
  const ports: string[] = [];
  let at = 0;
  for (;;) {
    const host = text[at] === "[" ? readBracketed(text, at, uri) : upTo(text, at, /[:/?,]/);
    hosts.push(host.text);
    at = host.end;
    const port = text[at] === ":" ? upTo(text, at + 1, /[/?,]/) : { text: "", end: at };
    ports.push(port.text);
    at = port.end;
    if (text[at] !== ",") break;
    at += 1;
  }
  return { hosts: hosts.join(","), ports: ports.join(","), end: at };
}

interface Token {
  readonly text: string;
  readonly end: number;
}

function upTo(text: string, from: number, ending: RegExp): Token {
  const length = text.slice(from).search(ending);
  const end = length === -1 ? text.length : from + length;
  return { text: text.slice(from, end), end };
}

function readBracketed(text: string, from: number, uri: string): Token {
  const close = text.indexOf("]", from);
  if (close === -1) {
    throw new ConnectionStringError(
      `end of string reached when looking for matching "]" in IPv6 host address in URI: "${maskUri(uri)}"`,
    );
  }
  if (close === from + 1) {
    throw new ConnectionStringError(`IPv6 host address may not be empty in URI: "${maskUri(uri)}"`);
  }
  const next = text[close + 1];
  if (next !== undefined && !":/?,".includes(next)) {
    const position = uri.length - text.length + close + 2;
    throw new ConnectionStringError(
      `unexpected character "${next}" at position ${position} in URI (expected ":" or "/"): "${maskUri(uri)}"`,
    );
  }
  return { text: text.slice(from + 1, close), end: close + 1 };
}

function readParameters(text: string, isKnown: (keyword: string) => boolean): Pair[] {
  const pairs: Pair[] = [];
  for (const parameter of text.replace(/&$/, "").split("&")) {
    if (text === "") break;
    const [name = "", value, extra] = parameter.split("=");
    if (value === undefined) {
      throw new ConnectionStringError(
        `missing key/value separator "=" in URI query parameter: "${name}"`,
      );
    }
    if (extra !== undefined) {
      throw new ConnectionStringError(
        `extra key/value separator "=" in URI query parameter: "${name}"`,
      );
    }
    const keyword = decode(name, name);
    const decoded = decode(value, keyword.includes("password") ? hidden : value);
    // The JDBC driver's way to say so.
    if (keyword === "ssl" && decoded === "true") pairs.push(["sslmode", "require"]);
    else if (isKnown(keyword)) pairs.push([keyword, decoded]);
    else throw new ConnectionStringError(`invalid URI query parameter: "${keyword}"`);
  }
  return pairs;
}

/** @param shown how a message may name the text */
function decode(text: string, shown: string): string {
  const trimmed = text.replace(/^[ \t\n\v\f\r]+|[ \t\n\v\f\r]+$/g, "");
  if (/[ \t\n\v\f\r]/.test(trimmed)) {
    throw new ConnectionStringError(
      `unexpected spaces found in "${shown}", use percent-encoded spaces (%20) instead`,
    );
  }
  if (/%(?![0-9a-f]{2})/i.test(trimmed)) {
    throw new ConnectionStringError(`invalid percent-encoded token: "${shown}"`);
  }
  if (trimmed.includes("%00")) {
    throw new ConnectionStringError(`forbidden value %00 in percent-encoded value: "${shown}"`);
  }
  return trimmed.replace(/(?:%[0-9a-f]{2})+/gi, (bytes) =>
    Buffer.from(bytes.replaceAll("%", ""), "hex").toString(),
  );
}

/** Everything between the prefix and the last "@" may hold a password. */
function maskUri(uri: string): string {
  return uri
    .replace(/^(postgres(?:ql)?:\/\/[^:@/]*):.*@/s, `$1:${hidden}@`)
    .replace(/([?&][^=&]*password=)[^&]*/gi, `$1${hidden}`);
}
