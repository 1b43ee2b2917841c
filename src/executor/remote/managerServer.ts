import { networkInterfaces } from "node:os";
import { serverStartSql } from "../../shared/postgres/backendIdentity.js";
import type { SocketAddress } from "../../shared/postgres/transport/socketOptions.js";
import type { ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import type { FromExecutor } from "../../shared/ipc/executorMessages.js";

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

  /** Reserves capacity for a connection if it leads to the manager's server. Throws ServerFull, or the signal's reason. */
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

  /** The server's start time is in the key, so that a restart or failover invalidates what was remembered. */
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

export class ServerFull extends Error {}

/** Ends a reservation: with true when the connection is open, with false when it could not be opened. */
export type EndReservation = (opened: boolean) => void;

type PermitMessage = Extract<FromExecutor, { type: "requestConnectionPermit" | "connectionPermitUsed" }>;

/**
 * Asks the manager for permits to open connections to the manager's server. The state of one request:
 *
 *     requested ──granted──▶ reserved ──connection open or failed──▶ over
 *      │     │                                                        ▲
 *      │     └──refused: ServerFull───────────────────────────────────┤
 *      └──aborted──▶ unwanted ──granted: returned unused, or refused──┘
 */
export class ConnectionPermits {
  /** For each address that was connected to, whether the manager's server is there. Maintained by `ManagerServer`. */
  readonly isManagerServer = new Map<string, boolean>();
  readonly #send: (message: PermitMessage) => void;
  readonly #pending = new Map<number, (granted: boolean) => void>();
  #requestCount = 0;

  constructor(send: (message: PermitMessage) => void) {
    this.#send = send;
  }

  /** @throws ServerFull if the manager's server has no capacity; the signal's reason */
  async request(signal: AbortSignal): Promise<EndReservation> {
    signal.throwIfAborted();
    const number = (this.#requestCount += 1);
    const answer = new Promise<boolean>((resolve, reject) => {
      const onAbort = (): void => {
        this.#pending.delete(number);
        reject(signal.reason);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.#pending.set(number, (granted) => {
        signal.removeEventListener("abort", onAbort);
        resolve(granted);
      });
    });
    this.#send({ type: "requestConnectionPermit", number });
    if (!(await answer)) throw new ServerFull();
    return (opened) => this.#send({ type: "connectionPermitUsed", number, opened });
  }

  /** If the request was aborted in the meantime, a granted permit is returned unused. */
  answer(number: number, granted: boolean): void {
    const resolve = this.#pending.get(number);
    this.#pending.delete(number);
    if (resolve !== undefined) resolve(granted);
    else if (granted) this.#send({ type: "connectionPermitUsed", number, opened: false });
  }
}
