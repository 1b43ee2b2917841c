import type { Configuration, ConnectionTarget, FileParameters } from "./types.js";

/** What stands in place of a secret. */
export const masked = "***";

/** A target to show: as it is, its password masked. */
export function maskTarget(target: ConnectionTarget): ConnectionTarget {
  return target.password === undefined ? target : { ...target, password: masked };
}

/** Parameters to show: as they are, the token masked. */
export function maskParameters<T extends Partial<FileParameters>>(parameters: T): T {
  return parameters["pg_http.token"] ? { ...parameters, "pg_http.token": masked } : parameters;
}

/** A configuration to show: as it is, every secret masked. */
export function maskConfiguration(configuration: Configuration): Configuration {
  return {
    ...configuration,
    parameters: maskParameters(configuration.parameters),
    control: maskTarget(configuration.control),
    entries: configuration.entries.map((entry) => ({ ...entry, target: maskTarget(entry.target) })),
  };
}
