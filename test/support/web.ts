import { once } from "node:events";
import { createServer, get, type IncomingMessage, type Server } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import type { z } from "zod";
import { clusterSchema } from "../../src/web/api/schemas.js";
import type { LogLines } from "./logLines.js";
import { listen } from "./listen.js";

export interface WebResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

export const token = "open-sesame-0123";

export class Web {
  readonly url: string;
  readonly token: string;

  private constructor(url: string, own: string) {
    this.url = url;
    this.token = own;
  }

  /**
   * Waits for the `count`th log line `page`. Uses the token in the logged address, or `given` if the address contains
   * none.
   */
  static async connect(program: LogLines, given = token, count = 1): Promise<Web> {
    const { url } = await program.line("page", count);
    const page = new URL(String(url));
    return new Web(page.origin, page.hash === "" ? given : page.hash.replace("#token=", ""));
  }

  async request(
    path: string,
    {
      method = "GET",
      headers = {},
      json,
    }: { method?: string; headers?: Record<string, string>; readonly json?: unknown } = {},
  ): Promise<WebResponse> {
    const type = json === undefined ? {} : { "Content-Type": "application/json" };
    return await this.requestWithoutToken(path, {
      method,
      headers: { Authorization: `Bearer ${this.token}`, ...type, ...headers },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
    });
  }

  async requestWithoutToken(path: string, options: RequestInit = {}): Promise<WebResponse> {
    const headers = new Headers(options.headers);
    // fetch could otherwise send a request on a connection that the server is just closing because it was idle.
    headers.set("Connection", "close");
    const response = await fetch(`${this.url}${path}`, { ...options, headers });
    return { status: response.status, headers: response.headers, text: await response.text() };
  }

  /** Asks for an address as if the server had another host name. Fetch cannot set the header. */
  async statusForHost(host: string, path = "/api/openapi.json"): Promise<number> {
    const [answer]: IncomingMessage[] = await once(get(`${this.url}${path}`, { headers: { Host: host } }), "response");
    answer?.resume();
    return answer?.statusCode ?? 0;
  }

  /** Makes a GET request, and returns the response, which the schema must accept. */
  async get<T extends z.ZodType>(schema: T, path: string): Promise<z.output<T>> {
    const { text } = await this.request(path);
    return schema.parse(JSON.parse(text));
  }

  async post(path: string, json: unknown): Promise<{ readonly status: number; readonly value: unknown }> {
    const { status, text } = await this.request(path, { method: "POST", json });
    return { status, value: JSON.parse(text) };
  }

  /** Scrapes the metrics, again and again until they satisfy the condition. */
  async metricsUntil(fits: (text: string) => boolean): Promise<string> {
    return await poll(async () => (await this.requestWithoutToken("/metrics")).text, fits);
  }

  async events(): Promise<Events> {
    const ending = new AbortController();
    const { body } = await fetch(`${this.url}/api/events`, {
      headers: { Authorization: `Bearer ${this.token}` },
      signal: ending.signal,
    });
    if (body === null) throw new Error("no stream");
    return new Events(body.getReader(), ending);
  }

  async tableId(name = "task", schemaName = "public"): Promise<string> {
    const { tables } = await this.get(clusterSchema, "/api/tables");
    const found = tables.find(({ schema, table }) => schema === schemaName && table === name);
    if (found === undefined) throw new Error(`no table ${name}`);
    return found.id;
  }
}

/** Time between two requests that wait for an answer, in ms. */
const pollMs = 50;

/** Asks until the answer satisfies the condition, and returns it. For what announces no changes. */
export async function poll<T>(ask: () => Promise<T>, fits: (answer: T) => boolean): Promise<T> {
  for (;;) {
    const answer = await ask();
    if (fits(answer)) return answer;
    await pause(pollMs);
  }
}

export class Events {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #abort: AbortController;
  #received = "";

  constructor(reader: ReadableStreamDefaultReader<Uint8Array>, ending: AbortController) {
    this.#reader = reader;
    this.#abort = ending;
  }

  /** Waits until something received since the last call matches. */
  async until(pattern: RegExp): Promise<void> {
    const decoder = new TextDecoder();
    while (!pattern.test(this.#received)) {
      const { value, done } = await this.#reader.read();
      if (done) throw new Error(`the stream ended after ${this.#received}`);
      this.#received += decoder.decode(value, { stream: true });
    }
    this.#received = "";
  }

  end(): void {
    this.#abort.abort();
  }
}

/**
 * Listens on a port of the loopback address, but does not answer as PostgreSQL would. The port is released after the
 * file's tests.
 */
export async function occupyPort(): Promise<{ readonly server: Server; readonly port: number }> {
  const server = createServer();
  return { server, port: await listen(server) };
}
