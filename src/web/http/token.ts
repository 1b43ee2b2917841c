import { createHash, randomBytes, timingSafeEqual } from "node:crypto";

/** Returns a new token of 192 random bits. */
export function randomToken(): string {
  return randomBytes(24).toString("base64url");
}

/** Compares two tokens in constant time, whatever their lengths. */
export function isSameToken(given: string, expected: string): boolean {
  return timingSafeEqual(digest(given), digest(expected));
}

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();

/** Returns the token in an `Authorization: Bearer …` header, or null if there is none. */
export function bearerToken(header: string | undefined): string | null {
  return /^Bearer +(\S+) *$/i.exec(header ?? "")?.[1] ?? null;
}
