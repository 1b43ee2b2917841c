import { createHmac } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import { listen } from "./listen.js";

export const webhookSecret = `whsec_${Buffer.from("0123456789abcdef0123456789abcdef").toString("base64")}`;

interface Message {
  readonly id: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly isSigned: boolean;
  readonly body: {
    readonly type: string;
    readonly timestamp: string;
    readonly text: string;
    readonly data: Readonly<Record<string, string | null>>;
  };
}

/** A server that is told the ends of tasks, and checks signatures as the specification Standard Webhooks says. */
export class WebhookReceiver extends EventEmitter<{ got: [] }> {
  readonly got: Message[] = [];
  /** Answers a request. Status 204 by default. */
  answer: (response: ServerResponse, message: Message) => void = accept;
  #port = 0;
  readonly #server = createServer((request, response) => {
    let text = "";
    request.on("data", (part: Buffer) => (text += part.toString()));
    request.on("end", () => {
      const { headers, url: path = "" } = request;
      const id = String(headers["webhook-id"]);
      const key = Buffer.from(webhookSecret.slice(6), "base64");
      const signed = createHmac("sha256", key).update(`${id}.${String(headers["webhook-timestamp"])}.${text}`);
      const isSigned = headers["webhook-signature"] === `v1,${signed.digest("base64")}`;
      const message = { id, path, headers, isSigned, body: JSON.parse(text) };
      this.got.push(message);
      this.answer(response, message);
      this.emit("got");
    });
  });

  static async started(): Promise<WebhookReceiver> {
    const receiver = new WebhookReceiver();
    receiver.#port = await listen(receiver.#server);
    return receiver;
  }

  url(path = "/hook"): string {
    return `http://127.0.0.1:${this.#port}${path}`;
  }

  /** What has been received of a task: the types of its messages. */
  ends(task: string): string[] {
    return this.got.filter(({ body }) => body.data["id"] === task).map(({ body }) => body.type);
  }

  /** Resolves when a message fits. Returns the first one. */
  async message(fits: (message: Message) => boolean): Promise<Message> {
    for (;;) {
      const found = this.got.find(fits);
      if (found !== undefined) return found;
      await once(this, "got");
    }
  }

  async endOf(task: string): Promise<Message> {
    return await this.message(({ body }) => body.data["id"] === task);
  }

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await once(this, "got");
  }

  /** Refuses connections until `open`. */
  async close(): Promise<void> {
    const closed = once(this.#server, "close");
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async open(): Promise<void> {
    const listening = once(this.#server, "listening");
    this.#server.listen(this.#port, "127.0.0.1");
    await listening;
  }
}

export function accept(response: ServerResponse): void {
  response.writeHead(204).end();
}
