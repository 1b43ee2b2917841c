import type { ConnectionTarget } from "../../config/types.js";

/** Names a target in logs and errors: never with its password. */
export function describeTarget(target: ConnectionTarget): string {
  const user = encodeURIComponent(target.user);
  const database = encodeURIComponent(target.database);
  if (target.host.startsWith("/")) {
    return `postgresql://${user}@/${database}?host=${target.host}&port=${target.port}`;
  }
  const host = target.host.includes(":") ? `[${target.host}]` : target.host;
  return `postgresql://${user}@${host}:${target.port}/${database}`;
}
