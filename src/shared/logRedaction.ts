/** The text that is shown in place of a secret. */
export const mask = "***";

/**
 * Fields of log lines that may contain a password or a token. pino replaces their values with asterisks. A password
 * within a message is masked by the code that makes the message, with `maskConnectionString`.
 */
export const logRedaction = {
  paths: ["password", "target.password", "*.password", "connectionString", "remote", "*.remote", "token"],
  censor: mask,
};
