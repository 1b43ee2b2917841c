import { once } from "node:events";
import type { Duplex } from "node:stream";
import { MessageFramer } from "../protocol/messageFramer.js";
import { closedUnexpectedly } from "../transport/openSocket.js";

export interface LoginMessage {
  readonly code: number;
  readonly body: Buffer;
}

const maxMessageBytes = 1 << 16;

export class LoginMessageReader {
  readonly #stream: Duplex;
  readonly #messages: LoginMessage[] = [];
  readonly #changed = new EventTarget();
  #problem: unknown = null;
  readonly #read: (chunk: Buffer) => void;
  readonly #end = (): void => this.#fail(closedUnexpectedly());
  readonly #error = (error: unknown): void => this.#fail(error);

  constructor(stream: Duplex) {
    this.#stream = stream;
    const frames = new MessageFramer(
      () => maxMessageBytes,
      (code, body, whole) => {
        if (!whole) throw new Error("message too large during login");
        this.#messages.push({ code, body: Buffer.from(body) });
        this.#changed.dispatchEvent(new Event("change"));
      },
    );
    this.#read = (chunk) => {
      try {
        frames.push(chunk);
      } catch (error) {
        this.#fail(error);
      }
    };
    stream.on("data", this.#read).on("end", this.#end).on("close", this.#end);
    stream.on("error", this.#error);
  }

  async next(signal: AbortSignal): Promise<LoginMessage> {
    for (;;) {
      const message = this.#messages.shift();
      if (message !== undefined) return message;
      if (this.#problem !== null) throw this.#problem;
      await once(this.#changed, "change", { signal });
    }
  }

  release(): void {
    this.#stream.off("data", this.#read).off("end", this.#end).off("close", this.#end);
    this.#stream.off("error", this.#error);
  }

  #fail(problem: unknown): void {
    this.#problem ??= problem;
    this.#changed.dispatchEvent(new Event("change"));
  }
}
