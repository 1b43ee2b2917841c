import { networkInterfaces } from "node:os";
import { serverStartSql } from "../../shared/postgres/backendIdentity.js";
import type { SocketAddress } from "../../shared/postgres/transport/socketOptions.js";
import type { ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import type { ConnectionPermits, EndReservation } from "./connectionPermits.js";

export interface ServerIdentity {
  /** Null stands for a Unix-domain socket on this machine. */
  readonly addresses: readonly (string | null)[];
  readonly port: number;
  /** Start time of the server by its own clock. Null if unknown. */
  readonly startedAt: string | null;
}

/**
 * Recognizes the manager's own server, to which remote tasks connect only with a permit, because its last free
 * connections are left to other clients. It is recognized by address and port (all addresses of this machine count as
 * one), and after the first connection to an address by its start time.
 */
export class ManagerServer {
  readonly #permits: ConnectionPermits;
  readonly #identity: ServerIdentity;

  constructor(permits: ConnectionPermits, identity: ServerIdentity) {
    this.#permits = permits;
    this.#identity = identity;
  }

  isAt(address: SocketAddress): boolean {
    return this.#permits.isManagerServer.get(this.#key(address)) ?? this.#hasAddress(address);
  }

  /**
   * Reserves capacity for a connection if it leads to the manager's server.
   *
   * @throws ServerFull
   * @throws the signal's reason
   */
  async reserve(address: SocketAddress, signal: AbortSignal): Promise<EndReservation> {
    return this.isAt(address) ? await this.#permits.request(signal) : () => {};
  }

  recordStart(address: SocketAddress, startedAt: string): void {
    if (this.#identity.startedAt === null) return;
    const isSame = startedAt === this.#identity.startedAt;
    this.#permits.isManagerServer.set(this.#key(address), isSame);
  }

  #hasAddress({ address, port }: SocketAddress): boolean {
    const machine = machineOf(address);
    return port === this.#identity.port && this.#identity.addresses.some((known) => machineOf(known) === machine);
  }

  /**
   * The start time of the manager's server is in the key, so that a restart or failover invalidates what was
   * remembered.
   */
  #key({ host, address, port }: SocketAddress): string {
    return `${this.#identity.startedAt} ${address ?? host} ${port}`;
  }
}

const thisMachine = "this machine";

function machineOf(address: string | null): string {
  if (address === null || address === "::1" || address.startsWith("127.")) return thisMachine;
  const local = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  return local.some((each) => each.address === address) ? thisMachine : address;
}

export async function readServerIdentity(wire: ProtocolConnection, port: number): Promise<ServerIdentity> {
  const { rows } = await wire.query(`SELECT ${serverStartSql}`);
  return { addresses: [wire.peer], port, startedAt: rows[0]?.[0] ?? null };
}
