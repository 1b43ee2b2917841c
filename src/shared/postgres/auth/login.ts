import { on } from "node:events";
import type { Duplex } from "node:stream";
import { decodeMessage, MessageCode, type ServerError } from "../protocol/decode.js";
import { MessageFramer } from "../protocol/messageFramer.js";
import { closedUnexpectedly } from "../transport/openSocket.js";
import { ConnectionProblem, MissingPassword, PasswordRequired } from "../errors.js";
import type { Scram, ScramBinding } from "./scram.js";
import type { AuthMethod, Credentials } from "./credentials.js";

export class LoginRefused extends Error {
  readonly error: ServerError;
  /** Whether the server had already accepted the authentication. */
  readonly authenticated: boolean;
  readonly encrypted: boolean;

  constructor(error: ServerError, { authenticated = true, encrypted = false } = {}) {
    super(error.message);
    this.error = error;
    this.authenticated = authenticated;
    this.encrypted = encrypted;
  }
}

export interface BackendKey {
  readonly pid: number;
  readonly secret: Buffer;
}

const protocolVersion = 196_608;
const authenticationCode = 0x52;
const backendKeyCode = 0x4b;
/** Largest message accepted during login. */
const maxMessageBytes = 1 << 16;

/**
 * Sends the startup packet, authenticates, and waits until the server is ready for queries.
 *
 * @throws LoginRefused, ConnectionProblem, Node's error for a lost connection, or an AbortError
 */
export async function login(stream: Duplex, credentials: Credentials, signal: AbortSignal): Promise<BackendKey> {
  const messages: { readonly code: number; readonly body: Buffer }[] = [];
  const frames = new MessageFramer(
    () => maxMessageBytes,
    (code, body, whole) => {
      if (!whole) throw new Error("message too large during login");
      messages.push({ code, body: Buffer.from(body) });
    },
  );
  const chunks: AsyncIterable<Buffer[]> = on(stream, "data", { signal, close: ["end", "close"] });
  stream.write(startupPacket(credentials));
  const authenticator = new Authenticator(stream, credentials);
  let key: BackendKey = { pid: 0, secret: Buffer.alloc(4) };
  for await (const received of chunks) {
    for (const chunk of received) frames.push(chunk);
    for (const { code, body } of messages.splice(0)) {
      if (code === MessageCode.error) {
        throw refusal(body, { authenticated: authenticator.succeeded, encrypted: "encrypted" in stream });
      }
      if (code === MessageCode.ready) return key;
      if (code === authenticationCode) await authenticator.answer(body);
      if (code === backendKeyCode) key = { pid: body.readInt32BE(0), secret: body.subarray(4) };
    }
  }
  throw closedUnexpectedly();
}

function refusal(body: Buffer, when: { readonly authenticated: boolean; readonly encrypted: boolean }): Error {
  const event = decodeMessage(MessageCode.error, body, true);
  if (event?.type !== "error") return new Error("unreadable error");
  return new LoginRefused(event.error, when);
}

function startupPacket({ user, database, startup, applicationName }: Credentials): Buffer {
  const parameters = { user, database, application_name: applicationName, ...startup };
  const pairs = Object.entries({ ...parameters, client_encoding: "UTF8" });
  const body = Buffer.from(`${pairs.map(([name, value]) => `${name}\0${value}\0`).join("")}\0`);
  const header = Buffer.alloc(8);
  header.writeInt32BE(body.length + 8, 0);
  header.writeInt32BE(protocolVersion, 4);
  return Buffer.concat([header, body]);
}

const Request = {
  ok: 0,
  cleartext: 3,
  md5: 5,
  gss: 7,
  sspi: 9,
  sasl: 10,
  saslContinue: 11,
  saslFinal: 12,
} as const;

const requestTexts: Readonly<Record<AuthMethod, string>> = {
  password: "server requested a cleartext password",
  md5: "server requested a hashed password",
  gss: "server requested GSSAPI authentication",
  sspi: "server requested SSPI authentication",
  "scram-sha-256": "server requested SASL authentication",
  none: "server did not complete authentication",
};

class Authenticator {
  readonly #stream: Duplex;
  readonly #credentials: Credentials;
  #scram: Scram | null = null;
  #passwordAsked = false;
  #succeeded = false;

  constructor(stream: Duplex, credentials: Credentials) {
    this.#stream = stream;
    this.#credentials = credentials;
  }

  get succeeded(): boolean {
    return this.#succeeded;
  }

  async answer(body: Buffer): Promise<void> {
    switch (body.readInt32BE(0)) {
      case Request.ok:
        return this.#accept();
      case Request.cleartext:
        this.#allow("password");
        return this.#send(`${this.#password()}\0`);
      case Request.md5:
        this.#allow("md5");
        return this.#send(`${await this.#hashed(body.subarray(4, 8))}\0`);
      case Request.sasl:
        this.#allow("scram-sha-256");
        return await this.#beginScram(body.toString("utf8", 4).split("\0"));
      case Request.saslContinue:
        return this.#send(await this.#exchange.final(body.toString("utf8", 4)));
      case Request.saslFinal:
        return this.#exchange.verify(body.toString("utf8", 4));
      case Request.gss:
        this.#allow("gss");
        throw new ConnectionProblem("GSSAPI authentication not supported");
      case Request.sspi:
        this.#allow("sspi");
        throw new ConnectionProblem("SSPI authentication not supported");
      default:
        throw new ConnectionProblem(`authentication method ${body.readInt32BE(0)} not supported`);
    }
  }

  #accept(): void {
    this.#succeeded = true;
    if (this.#scram !== null && !this.#scram.verified) {
      throw new ConnectionProblem("server did not complete authentication");
    }
    if (!this.#passwordAsked) this.#allow("none");
    const bound = this.#scram?.mechanism === "SCRAM-SHA-256-PLUS";
    if (this.#credentials.channelBinding === "require" && !bound) {
      throw new ConnectionProblem("channel binding required, but server authenticated client without channel binding");
    }
    if (this.#passwordAsked || !this.#credentials.passwordRequired) return;
    throw new PasswordRequired({
      detail: "Non-superuser cannot connect if the server does not request a password.",
      hint: "Target server's authentication method must be changed.",
    });
  }

  #allow(method: AuthMethod): void {
    const { authMethods, channelBinding } = this.#credentials;
    if (authMethods !== null && !authMethods.has(method)) {
      const requirement = [...authMethods].join(",");
      throw new ConnectionProblem(`authentication method requirement "${requirement}" failed: ${requestTexts[method]}`);
    }
    if (channelBinding === "require" && method !== "scram-sha-256" && method !== "none") {
      throw new ConnectionProblem("channel binding required but not supported by server's authentication request");
    }
  }

  #password(): string {
    this.#passwordAsked = true;
    const { password } = this.#credentials;
    if (password !== null && password !== "") return password;
    throw new MissingPassword();
  }

  async #hashed(salt: Buffer): Promise<string> {
    const { md5 } = await import("./md5.js");
    return `md5${md5(md5(this.#password(), this.#credentials.user), salt)}`;
  }

  async #beginScram(mechanisms: readonly string[]): Promise<void> {
    if (!mechanisms.some((each) => each.startsWith("SCRAM-SHA-256"))) {
      throw new ConnectionProblem("none of the server's SASL authentication mechanisms are supported");
    }
    const password = this.#password();
    const { Scram, channelBindingData } = await import("./scram.js");
    const { channelBinding } = this.#credentials;
    const data = channelBinding === "disable" ? null : channelBindingData(this.#stream);
    const scram = new Scram(password, this.#binding(mechanisms, data));
    if (!mechanisms.includes(scram.mechanism)) {
      throw new ConnectionProblem(`server does not offer ${scram.mechanism}`);
    }
    this.#scram = scram;
    const first = scram.first();
    const length = Buffer.alloc(4);
    length.writeInt32BE(Buffer.byteLength(first));
    this.#send(Buffer.concat([Buffer.from(`${scram.mechanism}\0`), length, Buffer.from(first)]));
  }

  #binding(mechanisms: readonly string[], data: Buffer | null): ScramBinding {
    const { channelBinding } = this.#credentials;
    const offered = mechanisms.includes("SCRAM-SHA-256-PLUS");
    if (offered && data !== null) return { kind: "bound", data };
    if (channelBinding === "require") {
      throw new ConnectionProblem(
        offered
          ? "channel binding is required, but the server's certificate has no hash for it"
          : "channel binding is required, but server did not offer an authentication method that supports channel binding",
      );
    }
    return { kind: data === null ? "none" : "possible" };
  }

  get #exchange(): Scram {
    if (this.#scram !== null) return this.#scram;
    throw new ConnectionProblem("unexpected SASL message");
  }

  #send(payload: string | Buffer): void {
    const body = Buffer.from(payload);
    const header = Buffer.alloc(5);
    header.write("p", 0, "latin1");
    header.writeInt32BE(body.length + 4, 1);
    this.#stream.write(Buffer.concat([header, body]));
  }
}
