import { readFileSync } from "node:fs";

/** Of this package. */
export function version(): string {
  const file = new URL("../../../../package.json", import.meta.url);
  const { version: text }: { version: string } = JSON.parse(readFileSync(file, "utf8"));
  return text;
}
