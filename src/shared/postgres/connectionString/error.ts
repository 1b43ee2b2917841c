/**
 * A connection string, or what it asks for, that cannot be used. The message is the server's
 * client library's own where it has one; it holds no secret.
 */
export class ConnectionStringError extends Error {}

/** What stands in place of something that may be part of a secret. */
export const hidden = "***";
