import { serversOf, type ConnectionTarget } from "../../shared/postgres/target/target.js";

/** The target of a remote task. Contains secrets: log only the result of `describeRemoteTarget`. */
export interface RemoteTarget extends ConnectionTarget {
  /** Null if no application_name is given. */
  readonly applicationName: string | null;
  /** Additional parameters of the startup message. */
  readonly startup: Readonly<Record<string, string>>;
  /** Whether connecting must fail if the server does not ask for the password. */
  readonly passwordRequired: boolean;
}

/** Describes a target for the log, without secrets. */
export function describeRemoteTarget(target: RemoteTarget): string {
  const addresses = serversOf(target).map(({ host, port }) => `${host}:${port}`);
  return `${target.user}@${addresses.join(",")}/${target.database}`;
}
