export const mask = "***";

/** pino masks these fields. A password within a message is masked by the code that makes the message. */
export const logRedaction = {
  paths: [
    "password",
    "target.password",
    "*.password",
    "connectionString",
    "remote",
    "*.remote",
    "token",
    "secret",
    "*.secret",
  ],
  censor: mask,
};
