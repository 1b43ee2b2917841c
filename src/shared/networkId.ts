import { createHash } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";

type ReadPart = () => string;

/**
 * What differs between networks, on Linux: a machine's boot, the network namespace of a container, and the host name,
 * because copies of a virtual machine can have the same boot id.
 */
const parts: readonly ReadPart[] = [
  hostname,
  () => readFileSync("/proc/sys/kernel/random/boot_id", "utf8"),
  () => readlinkSync("/proc/self/ns/net"),
];

/**
 * Identifies the network whose ports this process uses. What cannot be read, as on systems without /proc, is left out.
 * It is a hash, because other roles of the database may see it.
 */
export function networkId(read: readonly ReadPart[] = parts): string {
  const known = read.map((part) => {
    try {
      return part().trim();
    } catch {
      return "";
    }
  });
  return createHash("sha256").update(JSON.stringify(known)).digest("hex").slice(0, 32);
}
