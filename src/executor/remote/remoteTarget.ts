import { serversOf, type ConnectionTarget } from "../../shared/postgres/target/target.js";

/** Contains secrets: log only the result of `describeRemoteTarget`. */
export interface RemoteTarget extends ConnectionTarget {
  readonly applicationName: string | null;
  readonly startup: Readonly<Record<string, string>>;
  /** Whether connecting must fail if the server does not ask for the password. */
  readonly passwordRequired: boolean;
}

export function describeRemoteTarget(target: RemoteTarget): string {
  const addresses = serversOf(target).map(({ host, port }) => `${host}:${port}`);
  return `${target.user}@${addresses.join(",")}/${target.database}`;
}
