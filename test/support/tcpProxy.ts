import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { after } from "node:test";

/** The client asks whether the server has TLS. */
const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);

interface Link {
  /** Application name that the client gave when it came. */
  name: string;
  frozen: boolean;
  readonly client: Socket;
  readonly server: Socket;
}

/**
 * Stands between pg-task and a server. A connection may be frozen: from then on nothing passes, nor
 * does either side hear of the other's end, as when a cable is cut.
 */
export class TcpProxy {
  readonly #server: Server;
  readonly #links = new Set<Link>();
  /** Application names of all connections that ever came, and who waits for more. */
  readonly #came: string[] = [];
  #waiting: (() => void)[] = [];

  private constructor(server: Server) {
    this.#server = server;
  }

  static async to(port: number, host = "127.0.0.1"): Promise<TcpProxy> {
    const server = createServer((client) => proxy.#connect(client, connect(port, host)));
    const proxy = new TcpProxy(server);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    after(() => {
      for (const { client, server: other } of proxy.#links) {
        client.destroy();
        other.destroy();
      }
      server.close();
    });
    return proxy;
  }

  get port(): number {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("the proxy is closed");
    return address.port;
  }

  /** Freezes the connections whose application name begins like this; how many. */
  freeze(name: string): number {
    const links = [...this.#links].filter((link) => !link.frozen && link.name.startsWith(name));
    for (const link of links) link.frozen = true;
    return links.length;
  }

  /** Resolves when so many connections of that application name have come in all. */
  async came(name: string, count: number): Promise<void> {
    while (this.#came.filter((each) => each === name).length < count)
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #connect(client: Socket, server: Socket): void {
    const link: Link = { name: "", frozen: false, client, server };
    this.#links.add(link);
    const introduce = (data: Buffer): void => {
      // Whoever asks for TLS first says nothing else with it.
      if (data.equals(sslRequest)) return;
      client.off("data", introduce);
      const [, name = ""] = /application_name\0([^\0]*)\0/.exec(data.toString("latin1")) ?? [];
      link.name = name;
      this.#came.push(name);
      for (const each of this.#waiting.splice(0)) each();
    };
    client.on("data", introduce);
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      from.on("data", (data) => {
        if (!link.frozen) to.write(data);
      });
      from.on("error", () => {});
      from.on("close", () => {
        if (link.frozen) return;
        to.destroy();
        this.#links.delete(link);
      });
    }
  }
}
