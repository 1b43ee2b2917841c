import { createHash, createHmac, pbkdf2, randomBytes, timingSafeEqual } from "node:crypto";
import { promisify } from "node:util";
import { ConnectionProblem } from "../errors.js";
import { TLSSocket } from "node:tls";
import type { Duplex } from "node:stream";

const derive = promisify(pbkdf2);

/** Largest number of iterations that is accepted, because more would occupy a thread for seconds. Servers use 4096. */
const maxIterations = 1_000_000;

/** Channel binding: how the SCRAM exchange is tied to the TLS connection. */
export type ScramBinding =
  | { readonly kind: "bound"; readonly data: Buffer }
  /** The server did not offer channel binding. It notices if a man in the middle has removed the offer. */
  | { readonly kind: "possible" }
  | { readonly kind: "none" };

const headers = { bound: "p=tls-server-end-point,,", possible: "y,,", none: "n,," } as const;

/** One SCRAM-SHA-256 exchange, in which both sides prove that they know the password. */
export class Scram {
  readonly #password: string;
  readonly #binding: ScramBinding;
  readonly #nonce = randomBytes(18).toString("base64");
  #serverSignature: Buffer | null = null;
  #verified = false;

  constructor(password: string, binding: ScramBinding) {
    this.#password = prepare(password);
    this.#binding = binding;
  }

  /** Whether the server has proved that it knows the password. */
  get verified(): boolean {
    return this.#verified;
  }

  get mechanism(): string {
    return this.#binding.kind === "bound" ? "SCRAM-SHA-256-PLUS" : "SCRAM-SHA-256";
  }

  first(): string {
    return `${headers[this.#binding.kind]}${this.#firstBare}`;
  }

  async final(challenge: string): Promise<string> {
    const { r: nonce = "", s: salt = "", i: count = "" } = attributes(challenge);
    const iterations = /^\d{1,9}$/.test(count) ? Number(count) : 0;
    if (!nonce.startsWith(this.#nonce) || nonce === this.#nonce || salt === "" || iterations < 1) {
      throw malformed();
    }
    if (iterations > maxIterations) {
      throw new ConnectionProblem(`the server asks for ${iterations} SCRAM iterations, more than ${maxIterations}`);
    }
    const header = Buffer.from(headers[this.#binding.kind]);
    const data = this.#binding.kind === "bound" ? this.#binding.data : Buffer.alloc(0);
    const withoutProof = `c=${Buffer.concat([header, data]).toString("base64")},r=${nonce}`;
    const key = await derive(this.#password, Buffer.from(salt, "base64"), iterations, 32, "sha256");
    const clientKey = hmac(key, "Client Key");
    const message = `${this.#firstBare},${challenge},${withoutProof}`;
    const signature = hmac(createHash("sha256").update(clientKey).digest(), message);
    this.#serverSignature = hmac(hmac(key, "Server Key"), message);
    const proof = clientKey.map((byte, index) => byte ^ (signature[index] ?? 0));
    return `${withoutProof},p=${Buffer.from(proof).toString("base64")}`;
  }

  verify(serverFinal: string): void {
    const signature = Buffer.from(attributes(serverFinal)["v"] ?? "", "base64");
    const expected = this.#serverSignature;
    if (expected === null || signature.length !== expected.length) throw malformed();
    if (!timingSafeEqual(signature, expected)) {
      throw new ConnectionProblem("incorrect server signature");
    }
    this.#verified = true;
  }

  /** The user name is empty: the server takes it from the startup packet. */
  get #firstBare(): string {
    return `n=,r=${this.#nonce}`;
  }
}

/** Number of iterations of the verifiers that pg-task makes. This is also the server's default. */
const verifierIterations = 4096;

/** The verifier that PostgreSQL stores for a password. Unlike the password, it may be in the server's log. */
export async function scramVerifier(
  password: string,
  salt = randomBytes(16),
  iterations = verifierIterations,
): Promise<string> {
  const key = await derive(prepare(password), salt, iterations, 32, "sha256");
  const storedKey = createHash("sha256").update(hmac(key, "Client Key")).digest("base64");
  const serverKey = hmac(key, "Server Key").toString("base64");
  return `SCRAM-SHA-256$${iterations}:${salt.toString("base64")}$${storedKey}:${serverKey}`;
}

/** Whether `stored` is a SCRAM-SHA-256 verifier of this password. */
export async function isVerifierOf(stored: string, password: string): Promise<boolean> {
  const [, iterations = "", salt = ""] = /^SCRAM-SHA-256\$(\d{1,7}):([^$]+)\$/.exec(stored) ?? [];
  if (salt === "") return false;
  return (await scramVerifier(password, Buffer.from(salt, "base64"), Number(iterations))) === stored;
}

function attributes(text: string): Record<string, string> {
  return Object.fromEntries(text.split(",").map((each) => [each.charAt(0), each.slice(2)]));
}

function hmac(key: Buffer, text: string): Buffer {
  return createHmac("sha256", key).update(text).digest();
}

/** Prepares a password with the mappings of SASLprep. */
function prepare(password: string): string {
  return password
    .replace(/[\u00A0\u1680\u2000-\u200B\u202F\u205F\u3000]/gu, " ")
    .replace(/\u00AD|\u034F|\u1806|[\u180B-\u180D]|\u200C|\u200D|\u2060|[\uFE00-\uFE0F]|\uFEFF/gu, "")
    .normalize("NFKC");
}

function malformed(): ConnectionProblem {
  return new ConnectionProblem("malformed SCRAM message");
}

/** The hash to use for each signature algorithm. The keys are the DER-encoded object identifiers in hex. */
const hashes: Readonly<Record<string, string>> = {
  // RSA with MD5, RSA with SHA-1, and ECDSA with SHA-1. RFC 5929 replaces these weak hashes with SHA-256.
  "2a864886f70d010104": "sha256",
  "2a864886f70d010105": "sha256",
  "2a8648ce3d0401": "sha256",
  // RSA and then ECDSA, each with SHA-256, SHA-384 and SHA-512.
  "2a864886f70d01010b": "sha256",
  "2a864886f70d01010c": "sha384",
  "2a864886f70d01010d": "sha512",
  "2a8648ce3d040302": "sha256",
  "2a8648ce3d040303": "sha384",
  "2a8648ce3d040304": "sha512",
};

/** Returns the `tls-server-end-point` channel binding data; null without TLS or a suitable hash of the certificate. */
export function channelBindingData(stream: Duplex): Buffer | null {
  if (!(stream instanceof TLSSocket)) return null;
  const certificate = stream.getPeerCertificate().raw;
  if (certificate === undefined) return null;
  const hash = hashes[signatureAlgorithm(certificate)];
  return hash === undefined ? null : createHash(hash).update(certificate).digest();
}

/**
 * Returns the OID of the signature algorithm of a DER certificate: SEQUENCE { SEQUENCE { … }, SEQUENCE { OID, … }, … }
 */
function signatureAlgorithm(certificate: Buffer): string {
  const outer = element(certificate, 0);
  const signed = element(certificate, outer.start);
  const algorithm = element(certificate, signed.end);
  const { start, end } = element(certificate, algorithm.start);
  return certificate.toString("hex", start, end);
}

/** Returns where the content of the DER element at `offset` begins and ends. */
function element(bytes: Buffer, offset: number): { start: number; end: number } {
  const length = bytes.readUInt8(offset + 1);
  if (length < 0x80) return { start: offset + 2, end: offset + 2 + length };
  const size = length & 0x7f;
  const start = offset + 2 + size;
  return { start, end: start + bytes.readUIntBE(offset + 2, size) };
}
