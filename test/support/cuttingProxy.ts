import { connect, createServer, type Server, type Socket } from "node:net";
import { after } from "node:test";
import { listen } from "./listen.js";

/** `before`: the data do not arrive any more. `after`: they do. `silent`: neither side learns that they do not. */
export type Cut = "before" | "after" | "silent";

interface Plan {
  /** Application name of the connections that are cut. */
  readonly name: string;
  readonly cut: Cut;
  /** How many pieces of data of the connection pass before, in both directions together. */
  readonly passed: number;
}

interface Link {
  name: string | null;
  pieces: number;
  isSilent: boolean;
  isMuted: boolean;
}

/** How long after its last data a connection is cut, in ms. */
const lingerMs = 20;

/** A proxy that cuts one connection at a chosen moment. */
export class CuttingProxy {
  readonly port: number;
  readonly #target: number;
  readonly #links = new Set<Link>();
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;
  #plan: Plan | null = null;

  private constructor(server: Server, port: number, target: number) {
    this.#server = server;
    this.port = port;
    this.#target = target;
  }

  static async start(target: number): Promise<CuttingProxy> {
    const server = createServer((client) => proxy.#join(client, connect(proxy.#target, "127.0.0.1")));
    const proxy: CuttingProxy = new CuttingProxy(server, await listen(server), target);
    after(() => {
      for (const socket of proxy.#sockets) socket.destroy();
    });
    return proxy;
  }

  /** Refuses new connections. */
  refuse(): void {
    this.#server.close();
  }

  /** The next connection of this name is cut. Null: none is. */
  plan(plan: Plan | null): void {
    this.#plan = plan;
  }

  /** Whether a connection has been cut as planned. */
  get hasCut(): boolean {
    return this.#plan === null;
  }

  /** From now on, the server's answers on the open connections of this name are lost. */
  mute(name: string): void {
    for (const link of this.#links) link.isMuted ||= link.name === name;
  }

  #join(client: Socket, server: Socket): void {
    const link: Link = { name: null, pieces: 0, isSilent: false, isMuted: false };
    this.#links.add(link);
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#sockets.add(from);
      from.on("error", () => {});
      from.on("data", (data) => {
        link.name ??= /application_name\0([^\0]*)\0/.exec(data.toString("latin1"))?.[1] ?? null;
        if (link.isSilent || (link.isMuted && from === server)) return;
        link.pieces += 1;
        const plan = this.#plan;
        if (plan === null || plan.name !== link.name || link.pieces <= plan.passed) {
          to.write(data);
          return;
        }
        this.#plan = null;
        const end = (): void => [client, server].forEach((each) => each.destroy());
        if (plan.cut === "silent") link.isSilent = true;
        else if (plan.cut === "before") end();
        else to.write(data, () => setTimeout(end, lingerMs));
      });
      from.on("close", () => {
        if (link.isSilent) return;
        to.destroy();
        this.#links.delete(link);
      });
    }
  }
}
