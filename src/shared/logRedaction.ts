/**
 * Fields of log lines that may contain a password or a token. pino writes asterisks in their place. A password within a
 * message is masked where the message is made, by `maskPasswords`.
 */
export const logRedaction = {
  paths: ["password", "target.password", "*.password", "connectionString", "remote", "*.remote", "token"],
  censor: "***",
};
