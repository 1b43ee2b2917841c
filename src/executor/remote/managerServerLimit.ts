import { networkInterfaces } from "node:os";
import type { FromExecutor } from "../../shared/ipc/messages.js";
import type { SocketAddress } from "../../shared/postgres/transport/openSocket.js";
import type { ProtocolConnection } from "../../shared/postgres/protocol/connection.js";

/** The manager's own server has no room for one more connection: the task has to wait. */
export class ServerFull extends Error {}

/** Asks the manager for room on its own server; one for a thread. */
export class ConnectionPermits {
  /** Which places are the manager's own server, as far as that was seen. */
  readonly seen = new Map<string, boolean>();
  readonly #send: (message: Extract<FromExecutor, { type: "room" | "entered" }>) => void;
  readonly #waiting = new Map<number, (room: boolean) => void>();
  #questions = 0;

  constructor(send: (message: Extract<FromExecutor, { type: "room" | "entered" }>) => void) {
    this.#send = send;
  }

  /**
   * Has the manager keep room for one connection.
   *
   * @returns to be called once it was opened, or was not.
   * @throws NoRoom, and the signal's reason
   */
  async ask(signal: AbortSignal): Promise<(open: boolean) => void> {
    signal.throwIfAborted();
    const number = (this.#questions += 1);
    const answer = new Promise<boolean>((resolve, reject) => {
      const aborted = (): void => {
        this.#waiting.delete(number);
        reject(signal.reason);
      };
      signal.addEventListener("abort", aborted, { once: true });
      this.#waiting.set(number, (room) => {
        signal.removeEventListener("abort", aborted);
        resolve(room);
      });
    });
    this.#send({ type: "room", number });
    if (!(await answer)) throw new ServerFull();
    return (open) => this.#send({ type: "entered", number, open });
  }

  /** The manager's answer. */
  answered(number: number, room: boolean): void {
    const answer = this.#waiting.get(number);
    this.#waiting.delete(number);
    if (answer !== undefined) answer(room);
    else if (room) this.#send({ type: "entered", number, open: false });
  }
}

/** The server that the manager and its sessions are on, as a session or the configuration knows it. */
export interface HomeServer {
  /** Its addresses, as far as they are known: null is a socket of this machine. */
  readonly addresses: readonly (string | null)[];
  readonly port: number;
  /** When it was started, by its own account; null when that is not known. */
  readonly started: string | null;
}

/**
 * Tells which connections lead to the manager's own server, whose last ones are left to others: such a
 * connection is opened only where there is room for it.
 *
 * It is known by its address and port, this machine's addresses being one; and, when somebody was there
 * already, by when it was started, whatever its address.
 */
export class ManagerServer {
  readonly #desk: ConnectionPermits;
  readonly #home: HomeServer;

  constructor(desk: ConnectionPermits, home: HomeServer) {
    this.#desk = desk;
    this.#home = home;
  }

  is(place: SocketAddress): boolean {
    return this.#desk.seen.get(this.#key(place)) ?? this.#looksLike(place);
  }

  /**
   * Gets room for a connection, where it is to this server.
   *
   * @returns to be called once it was opened, or was not.
   * @throws NoRoom, and the signal's reason
   */
  async enter(place: SocketAddress, signal: AbortSignal): Promise<(open: boolean) => void> {
    return this.is(place) ? await this.#desk.ask(signal) : () => {};
  }

  /** A server was reached that says when it was started. */
  met(place: SocketAddress, started: string): void {
    const { started: own } = this.#home;
    if (own !== null) this.#desk.seen.set(this.#key(place), started === own);
  }

  #looksLike({ address, port }: SocketAddress): boolean {
    const machine = machineOf(address);
    return (
      port === this.#home.port && this.#home.addresses.some((own) => machineOf(own) === machine)
    );
  }

  /** What was seen before a restart, or a failover, counts no longer. */
  #key({ host, address, port }: SocketAddress): string {
    return `${this.#home.started} ${address ?? host} ${port}`;
  }
}

const thisMachine = "this machine";

function machineOf(address: string | null): string {
  if (address === null || address === "::1" || address.startsWith("127.")) return thisMachine;
  const own = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  return own.some((each) => each.address === address) ? thisMachine : address;
}

/** When a server was started, as text for comparing. */
export const startedSql =
  "pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())::pg_catalog.text";

/** As a session on it knows it. */
export async function homeServer(wire: ProtocolConnection, port: number): Promise<HomeServer> {
  const { rows } = await wire.ask(`SELECT ${startedSql}`);
  return { addresses: [wire.peer], port, started: rows[0]?.[0] ?? null };
}
