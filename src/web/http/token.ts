import { createHash, randomBytes, timingSafeEqual } from "node:crypto";

/** A token that nobody guesses. */
export function randomToken(): string {
  return randomBytes(24).toString("base64url");
}

/** Whether both are the same, in a time that says nothing about where they differ or how long they are. */
export function sameToken(given: string, expected: string): boolean {
  return timingSafeEqual(digest(given), digest(expected));
}

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();

/** The token in an `Authorization: Bearer …` header; null without one. */
export function bearerToken(header: string | undefined): string | null {
  return /^Bearer +(\S+) *$/i.exec(header ?? "")?.[1] ?? null;
}
