import { readFileSync } from "node:fs";
import { resolve, dirname } from "node:path";

/**
 * Whether a compiled test file looks at the server that this run of the suite has: it does by one of
 * its variables, in itself or in what it imports of `support`.
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
