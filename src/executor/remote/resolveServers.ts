import { isIP } from "node:net";
import {
  defaultSocketFolder,
  findPassword,
  passwordFilePath,
  readPasswordFile,
} from "../../shared/postgres/target/passwordFile.js";
import { ConnectionStringError } from "../../shared/postgres/connectionString/error.js";
import type { RemoteServer } from "./remoteTarget.js";
import { readInteger, type RemoteContext, type ConnectionOptions } from "./connectionOptions.js";

/** The servers in the order in which they are to be tried. @throws ConnectionStringProblem */
export function readServers(words: ConnectionOptions): Omit<RemoteServer, "password">[] {
  const addresses = words.list("hostaddr");
  const hosts = words.list("host");
  const ports = words.list("port");
  const count = addresses.length || hosts.length || 1;
  if (addresses.length > 0 && hosts.length > 0 && hosts.length !== addresses.length) {
    throw new ConnectionStringError(
      `could not match ${hosts.length} host names to ${addresses.length} hostaddr values`,
    );
  }
  if (ports.length > 1 && ports.length !== count) {
    throw new ConnectionStringError(
      `could not match ${ports.length} port numbers to ${count} hosts`,
    );
  }
  return Array.from({ length: count }, (_, place) => {
    const address = addresses[place] || null;
    if (address !== null && isIP(address) === 0) {
      throw new ConnectionStringError(
        `could not parse network address "${address}": Name or service not known`,
      );
    }
    const host = hosts[place] || (address === null ? defaultSocketFolder : "");
    return { host, address, port: readPort(ports[place] ?? ports[0] ?? "") };
  });
}

function readPort(text: string): number {
  if (text === "") return 5432;
  const port = readInteger(text);
  if (port === null) {
    throw new ConnectionStringError(`invalid integer value "${text}" for connection option "port"`);
  }
  if (port >= 1 && port <= 65_535) return port;
  throw new ConnectionStringError(`invalid port number: "${text}"`);
}

/** Each with the password that is meant for it. */
export async function withPasswords(
  servers: readonly Omit<RemoteServer, "password">[],
  words: ConnectionOptions,
  context: RemoteContext,
): Promise<RemoteServer[]> {
  const given = words.text("password");
  if (given !== undefined)
    return shuffled(
      servers.map((each) => ({ ...each, password: given })),
      words,
    );
  const path = words.text("passfile") ?? passwordFilePath(context.env);
  const file = await readPasswordFile(path, context.warn);
  const database = words.text("dbname") ?? "";
  const user = words.text("user") ?? "";
  const found = servers.map((each) => {
    const host = each.host || (each.address ?? "");
    const password =
      file === null ? null : findPassword(file, { host, port: each.port, database, user });
    return { ...each, password };
  });
  return shuffled(found, words);
}

function shuffled(servers: readonly RemoteServer[], words: ConnectionOptions): RemoteServer[] {
  const random = words.choice("load_balance_hosts", ["disable", "random"]) === "random";
  if (!random) return [...servers];
  return servers
    .map((server) => ({ server, place: Math.random() }))
    .toSorted((a, b) => a.place - b.place)
    .map(({ server }) => server);
}
