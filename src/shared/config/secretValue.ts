/** The least length of a token in characters. A token of 16 random characters cannot be guessed over a network. */
export const leastTokenLength = 16;

/** Matches a token that is long enough and that a header can carry. */
export const tokenPattern = new RegExp(`^[!-~]{${leastTokenLength},}$`);

/** The environment variable of a secret is empty or not set. */
export class MissingSecret extends Error {}

/**
 * Resolves a secret given in the file: either the text itself, or `{"env": "NAME"}` for the value of an environment
 * variable.
 *
 * @param kind what an error message calls the secret
 * @throws MissingSecret
 */
export function resolveSecret(given: unknown, env: NodeJS.ProcessEnv, kind: string): string {
  if (typeof given !== "object" || given === null || !("env" in given)) return String(given);
  const name = String(given.env);
  const value = env[name];
  if (value) return value;
  throw new MissingSecret(
    `expected the environment variable ${name} to hold the ${kind}, got ${value === "" ? "an empty one" : "no such variable"}`,
  );
}
