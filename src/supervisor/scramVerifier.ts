import { createHash, createHmac, pbkdf2, randomBytes } from "node:crypto";
import { promisify } from "node:util";

const iterations = 4096;

/**
 * What PostgreSQL keeps of a password for SCRAM-SHA-256, made here as libpq's PQencryptPasswordConn
 * does: given instead of the password, that never reaches the server's log.
 */
export async function scramVerifier(password: string, salt = randomBytes(16)): Promise<string> {
  const salted = await promisify(pbkdf2)(
    password.normalize("NFKC"),
    salt,
    iterations,
    32,
    "sha256",
  );
  const hmac = (text: string): Buffer => createHmac("sha256", salted).update(text).digest();
  const stored = createHash("sha256").update(hmac("Client Key")).digest("base64");
  const server = hmac("Server Key").toString("base64");
  return `SCRAM-SHA-256$${iterations}:${salt.toString("base64")}$${stored}:${server}`;
}
