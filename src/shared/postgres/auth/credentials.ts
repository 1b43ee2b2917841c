export const channelBindings = ["disable", "prefer", "require"] as const;
export type ChannelBinding = (typeof channelBindings)[number];

export const authMethods = ["password", "md5", "gss", "sspi", "scram-sha-256", "none"] as const;
export type AuthMethod = (typeof authMethods)[number];

/** What a session is asked for, and who asks; holds a secret, so never log it. */
export interface Credentials {
  readonly user: string;
  readonly password: string | null;
  readonly database: string;
  readonly applicationName: string;
  /** More for the startup packet. */
  readonly startup: Readonly<Record<string, string>>;
  readonly channelBinding: ChannelBinding;
  /** How the server may ask who we are; null is any way. */
  readonly authMethods: ReadonlySet<AuthMethod> | null;
  /** Whether the server has to ask for the password. */
  readonly passwordRequired: boolean;
}
