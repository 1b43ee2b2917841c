import { PartProblem } from "../postgres/target/parseUrl.js";

/**
 * A secret as a file gives it: its text, or `{"env": "NAME"}` for an environment variable's.
 *
 * @param what it is called in the message
 * @throws PartProblem when the variable is empty or not there
 */
export function secretText(given: unknown, env: NodeJS.ProcessEnv, what: string): string {
  if (typeof given !== "object" || given === null || !("env" in given)) return String(given);
  const name = String(given.env);
  const value = env[name];
  if (value) return value;
  throw new PartProblem(
    `expected the environment variable ${name} to hold the ${what}, got ${value === "" ? "an empty one" : "none of that name"}`,
  );
}
