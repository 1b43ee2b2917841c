import { connect, createServer, type Server, type Socket } from "node:net";
import { after } from "node:test";
import { listen } from "./listen.js";

const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);

interface Link {
  /** Application name from the client's startup message. */
  name: string;
  frozen: boolean;
  readonly client: Socket;
  readonly server: Socket;
}

/**
 * A proxy between pg-task and a server. It can freeze a connection, as if a cable were cut: no more data passes, and
 * neither side learns that the other one has closed.
 */
export class TcpProxy {
  readonly #server: Server;
  readonly #links = new Set<Link>();
  readonly #applicationNames: string[] = [];
  #waiting: (() => void)[] = [];

  #port = 0;
  /** The port to which new connections lead. */
  #target: number;

  private constructor(server: Server, target: number) {
    this.#server = server;
    this.#target = target;
  }

  /** Lets new connections lead to the server on another port. The existing connections stay as they are. */
  moveTo(port: number): void {
    this.#target = port;
  }

  get count(): number {
    return this.#applicationNames.length;
  }

  static async start(port: number, host = "127.0.0.1"): Promise<TcpProxy> {
    const server = createServer((client) => proxy.#connect(client, connect(proxy.#target, host)));
    const proxy = new TcpProxy(server, port);
    after(() => {
      for (const { client, server: other } of proxy.#links) {
        client.destroy();
        other.destroy();
      }
    });
    proxy.#port = await listen(server);
    return proxy;
  }

  get port(): number {
    return this.#port;
  }

  /** Ends all connections, and refuses further ones. */
  refuse(): void {
    this.#server.close();
    for (const { client, server } of this.#links) {
      client.destroy();
      server.destroy();
    }
  }

  /**
   * Freezes the connections whose application name starts with `name`. Returns how many.
   *
   * @param options.blocks whether the server's data is not even received, so that a server that sends much has to wait
   */
  freeze(name: string, { blocks = false } = {}): number {
    const links = [...this.#links].filter((link) => !link.frozen && link.name.startsWith(name));
    for (const link of links) {
      link.frozen = true;
      if (blocks) link.server.pause();
    }
    return links.length;
  }

  /** Number of connections that are open or frozen. */
  get size(): number {
    return this.#links.size;
  }

  /** Freezes one connection, from which nothing is received any more. */
  silence(nth: number): void {
    const link = [...this.#links][nth];
    if (link === undefined) return;
    link.frozen = true;
    link.client.pause();
    link.server.pause();
  }

  /** Resets the frozen connections at both ends, as a real network does after a while. */
  breakSilent(): void {
    for (const link of this.#links) {
      if (!link.frozen) continue;
      this.#links.delete(link);
      link.client.resetAndDestroy();
      link.server.resetAndDestroy();
    }
  }

  /** Resolves when `count` connections with this application name have been opened in total. */
  async connected(name: string, count: number): Promise<void> {
    while (this.#applicationNames.filter((each) => each === name).length < count)
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #connect(client: Socket, server: Socket): void {
    const link: Link = { name: "", frozen: false, client, server };
    this.#links.add(link);
    const introduce = (data: Buffer): void => {
      // An SSLRequest is sent on its own, before the startup message.
      if (data.equals(sslRequest)) return;
      client.off("data", introduce);
      const [, name = ""] = /application_name\0([^\0]*)\0/.exec(data.toString("latin1")) ?? [];
      link.name = name;
      this.#applicationNames.push(name);
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
