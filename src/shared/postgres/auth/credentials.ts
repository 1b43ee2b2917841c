export const channelBindings = ["disable", "prefer", "require"] as const;
export type ChannelBinding = (typeof channelBindings)[number];

export const authMethods = ["password", "md5", "gss", "sspi", "scram-sha-256", "none"] as const;
export type AuthMethod = (typeof authMethods)[number];

/** What the startup packet and authentication need. Contains a secret and must never be logged. */
export interface Credentials {
  readonly user: string;
  readonly password: string | null;
  readonly database: string;
  readonly applicationName: string;
  /** Further parameters of the startup packet. */
  readonly startup: Readonly<Record<string, string>>;
  readonly channelBinding: ChannelBinding;
  /** Accepted authentication methods; null accepts all. */
  readonly authMethods: ReadonlySet<AuthMethod> | null;
  /** Whether connecting must fail if the server does not ask for the password. */
  readonly passwordRequired: boolean;
}
