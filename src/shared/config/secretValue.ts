/** A token of 16 random characters cannot be guessed over a network. */
export const leastTokenLength = 16;

export const tokenPattern = new RegExp(`^[!-~]{${leastTokenLength},}$`);

export class MissingSecret extends Error {}

/**
 * Returns the text itself, or the value of the variable in `{"env": "NAME"}`. `kind` is what a message calls the
 * secret.
 *
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
