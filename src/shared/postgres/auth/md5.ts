import { createHash } from "node:crypto";

export function md5(...parts: readonly (string | Buffer)[]): string {
  const hash = createHash("md5");
  for (const part of parts) hash.update(part);
  return hash.digest("hex");
}
