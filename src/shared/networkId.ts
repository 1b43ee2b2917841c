import { createHash } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";

/** Reads one of the operating system's descriptions of this machine. */
type ReadPart = () => string;

/**
 * What tells the network of this process from any other, on Linux. The id of a machine's boot differs between machines,
 * and the network namespace differs between the containers of a machine, unless they share their ports. Copies of a
 * virtual machine can have the same boot id, which is why the host name belongs to it.
 */
const parts: readonly ReadPart[] = [
  hostname,
  () => readFileSync("/proc/sys/kernel/random/boot_id", "utf8"),
  () => readlinkSync("/proc/self/ns/net"),
];

/**
 * Returns an identifier of the network whose ports this process uses. Two processes with the same identifier cannot
 * listen on the same port. A part that cannot be read, as on systems without /proc, is left out. It is a hash, because
 * other roles of the database may see it.
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
