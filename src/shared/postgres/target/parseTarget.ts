import { isAbsolute } from "node:path";
import { unstorablePart } from "../../storableText.js";
import { keywords } from "../connectionString/keywords.js";
import { parseConnectionUri, type GivenOptions } from "../connectionString/parse.js";
import { ConnectionStringError } from "../errors.js";
import { ConnectionOptions } from "./connectionOptions.js";
import { readTarget, type FindUserFile, type ReadTarget } from "./readTarget.js";
import { writableAttributes } from "./target.js";

/** The PG* variables that can name a server or how to connect to it. The others change only how sessions behave. */
export const connectionVariables = Object.entries(keywords).flatMap(([name, { variable }]) =>
  variable === undefined || ["client_encoding", "options"].includes(name) ? [] : variable,
);

/** If a URL does not match, its password is probably not percent-encoded, so no part of it is shown. */
const urlPattern =
  /^postgres(?:ql)?:\/\/(?:[^:@/]*(?::[^@/]*)?@)?(?:\[[^\]]*\]|[^:/?,]*)(?::\d*)?(?:,(?:\[[^\]]*\]|[^:/?,]*)(?::\d*)?)*(?:\/[^?@/]*)?(?:\?.*)?$/s;

/** Checks a URL in which every component is optional. Throws ConnectionStringError. */
export function parseTargetUrl(url: string): GivenOptions {
  // The server would end the connection because of a NUL, and the driver would replace a lone surrogate.
  const problem = unstorablePart(url);
  if (problem !== null) throw new ConnectionStringError(`expected a URL without ${problem}`);
  if (!urlPattern.test(url)) {
    throw new ConnectionStringError(
      "expected a URL like postgresql://user:password@host:port/database (special characters in a name or password are percent-encoded)",
    );
  }
  const given = parseConnectionUri(url);
  readLocalTarget(new ConnectionOptions(given, { env: {} }), () => undefined);
  return given;
}

export function readLocalTarget(options: ConnectionOptions, userFile: FindUserFile): ReadTarget {
  options.list("host").forEach(checkHost);
  return readTarget(options, userFile, writableAttributes);
}

function checkHost(text: string): void {
  if (text.includes("@")) {
    throw new ConnectionStringError('expected a host name, got one with "@" (in user and password it is written %40)');
  }
  if (/[\\/\s]/.test(text) && !isAbsolute(text)) {
    throw new ConnectionStringError(
      `expected a host name, an address or the absolute path of a socket's directory, got ${JSON.stringify(text)}`,
    );
  }
}
