import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { after } from "node:test";
import type { z } from "zod";
import { clusterSchema } from "../../src/web/api/schemas.js";
import type { TestProcess } from "./process.js";

/** What an answer holds. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

/** The token of tests. */
export const token = "open-sesame";

/** A program's web server, asked as by a script that has the token. */
export class Web {
  readonly url: string;
  readonly token: string;

  private constructor(url: string, own: string) {
    this.url = url;
    this.token = own;
  }

  /** Once it listens, for the `count`th time; the token is what the log has, else the one given. */
  static async of(program: TestProcess, given = token, count = 1): Promise<Web> {
    const { url } = await program.line("page", count);
    const page = new URL(String(url));
    return new Web(page.origin, page.hash === "" ? given : page.hash.replace("#token=", ""));
  }

  async ask(
    path: string,
    { method = "GET", headers = {} }: { method?: string; headers?: Record<string, string> } = {},
  ): Promise<Answer> {
    return await this.anonymously(path, {
      method,
      headers: { Authorization: `Bearer ${this.token}`, ...headers },
    });
  }

  async anonymously(path: string, options: RequestInit = {}): Promise<Answer> {
    const response = await fetch(`${this.url}${path}`, options);
    return { status: response.status, headers: response.headers, text: await response.text() };
  }

  /** An answer of the shape that is documented. */
  async get<T extends z.ZodType>(schema: T, path: string): Promise<z.output<T>> {
    const { text } = await this.ask(path);
    return schema.parse(JSON.parse(text));
  }

  async events(): Promise<Events> {
    const ending = new AbortController();
    const { body } = await fetch(`${this.url}/api/events`, {
      headers: { Authorization: `Bearer ${this.token}` },
      signal: ending.signal,
    });
    if (body === null) throw new Error("there is no stream");
    return new Events(body.getReader(), ending);
  }

  /** The id of the table of that name. */
  async tableId(name = "task"): Promise<string> {
    const { tables } = await this.get(clusterSchema, "/api/tables");
    const found = tables.find(({ table }) => table === name);
    if (found === undefined) throw new Error(`no table ${name}`);
    return found.id;
  }
}

/** A stream of events that is open. */
export class Events {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #ending: AbortController;
  #heard = "";

  constructor(reader: ReadableStreamDefaultReader<Uint8Array>, ending: AbortController) {
    this.#reader = reader;
    this.#ending = ending;
  }

  /** Resolves when this was said since the last such question. */
  async until(what: RegExp): Promise<void> {
    const decoder = new TextDecoder();
    while (!what.test(this.#heard)) {
      const { value, done } = await this.#reader.read();
      if (done) throw new Error(`the stream ended after ${this.#heard}`);
      this.#heard += decoder.decode(value, { stream: true });
    }
    this.#heard = "";
  }

  end(): void {
    this.#ending.abort();
  }
}

/** Something that has a port of loopback and never answers as PostgreSQL; closed after the test file. */
export async function portTaker(): Promise<{ readonly server: Server; readonly port: number }> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  after(() => server.close());
  const address = server.address();
  if (typeof address !== "object" || address === null) throw new Error("it has no port");
  return { server, port: address.port };
}
