import { isIP } from "node:net";
import {
  defaultSocketDirectory,
  findPassword,
  passwordFilePath,
  readPasswordFile,
} from "../../shared/postgres/target/passwordFile.js";
import { shownValue } from "../../shared/postgres/connectionString/mayShow.js";
import { shuffled } from "../../shared/postgres/target/tryServers.js";
import { ConnectionStringError } from "../../shared/postgres/errors.js";
import type { RemoteServer } from "./remoteTarget.js";
import { parseInteger, type RemoteContext, type ConnectionOptions } from "./connectionOptions.js";

/**
 * Returns the servers in the order of the connection string.
 *
 * @throws ConnectionStringError
 */
export function resolveServers(options: ConnectionOptions): Omit<RemoteServer, "password">[] {
  const addresses = options.list("hostaddr");
  const hosts = options.list("host");
  const ports = options.list("port");
  const count = addresses.length || hosts.length || 1;
  if (addresses.length > 0 && hosts.length > 0 && hosts.length !== addresses.length) {
    throw new ConnectionStringError(
      `could not match ${hosts.length} host names to ${addresses.length} hostaddr values`,
    );
  }
  if (ports.length > 1 && ports.length !== count) {
    throw new ConnectionStringError(`could not match ${ports.length} port numbers to ${count} hosts`);
  }
  return Array.from({ length: count }, (_, index) => {
    const address = addresses[index] || null;
    if (address !== null && isIP(address) === 0) {
      throw new ConnectionStringError(
        `could not parse network address "${shownValue("hostaddr", address)}": Name or service not known`,
      );
    }
    const host = hosts[index] || (address === null ? defaultSocketDirectory : "");
    return { host, address, port: parsePort(ports[index] ?? ports[0] ?? "") };
  });
}

function parsePort(text: string): number {
  if (text === "") return 5432;
  const port = parseInteger(text);
  if (port === null) {
    throw new ConnectionStringError(`invalid integer value "${shownValue("port", text)}" for connection option "port"`);
  }
  if (port >= 1 && port <= 65_535) return port;
  throw new ConnectionStringError(`invalid port number: "${text}"`);
}

/** Adds each server's password, and shuffles the servers if `load_balance_hosts` is `random`. */
export async function addPasswords(
  servers: readonly Omit<RemoteServer, "password">[],
  options: ConnectionOptions,
  context: RemoteContext,
): Promise<RemoteServer[]> {
  const password = options.text("password");
  if (password !== undefined) {
    return shuffle(
      servers.map((server) => ({ ...server, password })),
      options,
    );
  }
  const path = options.text("passfile") ?? passwordFilePath(context.env);
  const file = await readPasswordFile(path, context.warn);
  const database = options.text("dbname") ?? "";
  const user = options.text("user") ?? "";
  const withPasswords = servers.map((server) => {
    const host = server.host || (server.address ?? "");
    const key = { host, port: server.port, database, user };
    return { ...server, password: file === null ? null : findPassword(file, key) };
  });
  return shuffle(withPasswords, options);
}

function shuffle(servers: readonly RemoteServer[], options: ConnectionOptions): RemoteServer[] {
  const random = options.choice("load_balance_hosts", ["disable", "random"]) === "random";
  return random ? shuffled(servers) : [...servers];
}
