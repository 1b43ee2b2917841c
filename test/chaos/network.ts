import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";

interface Link {
  readonly near: Socket;
  readonly far: Socket;
  silent: boolean;
}

/** A proxy between pg-task and its server whose connections can be silenced or broken. */
export class Network {
  readonly #server: Server;
  readonly #links = new Set<Link>();

  /** @param port the port of the server on the loopback address */
  static async to(port: number): Promise<Network> {
    const network = new Network(port);
    network.#server.listen(0, "127.0.0.1");
    await once(network.#server, "listening");
    return network;
  }

  private constructor(port: number) {
    this.#server = createServer((near) => {
      const far = connect(port, "127.0.0.1");
      const link: Link = { near, far, silent: false };
      this.#links.add(link);
      join(link, near, far);
      join(link, far, near);
      // A silent link is kept, because its other end has not been closed yet.
      near.once("close", () => {
        if (!link.silent) this.#links.delete(link);
      });
    });
  }

  get port(): number {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("the network is closed");
    return address.port;
  }

  get size(): number {
    return this.#links.size;
  }

  /** Stops forwarding on one connection, in both directions, without closing it. */
  silence(nth: number): void {
    const link = [...this.#links][nth];
    if (link === undefined) return;
    link.silent = true;
    link.near.pause();
    link.far.pause();
  }

  /** Resets the silent connections at both ends, as a real network does after a while. */
  breakSilent(): void {
    for (const link of this.#links) {
      if (!link.silent) continue;
      this.#links.delete(link);
      destroy(link);
    }
  }

  close(): void {
    this.#server.close();
    for (const link of this.#links) destroy(link);
  }
}

function join(link: Link, from: Socket, to: Socket): void {
  from.on("data", (chunk) => void to.write(chunk));
  from.on("error", () => {});
  // If one end closes while the link is silent, the other end stays open.
  from.on("close", () => {
    if (!link.silent) to.destroy();
  });
}

function destroy({ near, far }: Link): void {
  near.resetAndDestroy();
  far.resetAndDestroy();
}
