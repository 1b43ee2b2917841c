import type { Configuration, ConnectionTarget } from "./types.js";

/** What stands in place of a secret. */
export const masked = "***";

/** A target to show: as it is, its password masked. */
export function maskTarget(target: ConnectionTarget): ConnectionTarget {
  return target.password === undefined ? target : { ...target, password: masked };
}

/** A configuration to show: as it is, every password masked. */
export function maskConfiguration(configuration: Configuration): Configuration {
  return {
    ...configuration,
    control: maskTarget(configuration.control),
    entries: configuration.entries.map((entry) => ({ ...entry, target: maskTarget(entry.target) })),
  };
}
