import { loopback } from "./port.js";

/** Returns the URL of the embedded server on this port. */
export const serverUrl = (port: number): string => `postgresql://postgres@${loopback}:${port}/postgres`;

/**
 * Returns the URL by which pg-task itself connects. It turns off TLS, which the embedded server does not support but
 * PGSSLMODE may ask for.
 */
export const serverUrlWithoutTls = (port: number): string => `${serverUrl(port)}?sslmode=disable`;
