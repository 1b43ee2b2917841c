import type { Duplex } from "node:stream";
import { Client, Connection, type ClientConfig } from "pg";
import type { OpenStream } from "./openStream.js";

type Open = (signal: AbortSignal) => Promise<OpenStream>;

/** A connection of the pg driver that pg-task itself opens, encrypts and logs in. The driver only sends statements. */
class DriverConnection extends Connection {
  declare stream: Duplex;
  declare attachListeners: (stream: Duplex) => void;
  readonly #open: Open;

  constructor(open: Open) {
    super();
    this.#open = open;
  }

  /** Called by the driver, which listens for the events after this call. */
  connect(): void {
    const giveUp = new AbortController();
    // Until it is connected, the driver ends or destroys this socket if it gives up.
    const unused = this.stream;
    unused.on("error", () => {});
    unused.once("close", () => giveUp.abort());
    this.#open(giveUp.signal).then(
      (opened) => this.#use(opened),
      (error: unknown) => {
        this.emit("error", error);
        this.emit("end");
      },
    );
  }

  #use({ stream, key }: OpenStream): void {
    // The driver sends the Terminate message only if it believes that it has opened the connection itself.
    Reflect.set(this, "_connecting", true);
    this.stream = stream;
    stream.on("error", (error: Error & { code?: string }) => {
      const isExpected =
        Reflect.get(this, "_ending") === true && (error.code === "ECONNRESET" || error.code === "EPIPE");
      if (!isExpected) this.emit("error", error);
    });
    stream.on("close", () => this.emit("end"));
    this.attachListeners(stream);
    this.emit("backendKeyData", { processID: key.pid, secretKey: key.secret });
    this.emit("readyForQuery", { status: "I" });
  }
}

export function driverClients(open: Open): new (options?: ClientConfig) => Client {
  return class extends Client {
    constructor(options?: ClientConfig) {
      const config: ClientConfig & { readonly connection: Connection } = {
        ...options,
        ssl: false,
        connection: new DriverConnection(open),
      };
      super(config);
    }
  };
}
