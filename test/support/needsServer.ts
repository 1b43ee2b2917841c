import { readFileSync } from "node:fs";
import { resolve, dirname } from "node:path";

/**
 * Whether a compiled test file depends on the server on which the tests run, that is, whether the file or a file that
 * it imports from `support` reads one of the environment variables that select the server.
 */
export function needsServer(file: string, seen = new Set<string>()): boolean {
  if (seen.has(file)) return false;
  seen.add(file);
  const text = readFileSync(file, "utf8");
  if (/process\.env\["TEST_(?:DATABASE_URL|POSTGRES)"\]/.test(text)) return true;
  return [...text.matchAll(/ from "(\.[^"]*\/support\/[^"]+|\.\/[^"]+)"/g)].some(([, imported]) =>
    needsServer(resolve(dirname(file), imported ?? ""), seen),
  );
}
