import { readFileSync } from "node:fs";

/** Returns the version of this package. */
export function packageVersion(): string {
  const file = new URL("../../../package.json", import.meta.url);
  const { version: text }: { version: string } = JSON.parse(readFileSync(file, "utf8"));
  return text;
}
