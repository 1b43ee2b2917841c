import { isLoopback, parseListen } from "./listenAddress.js";
import { secretParameters } from "./parameters.js";
import type { FileParameters } from "./parameterTable.js";
import { invalidConfiguration } from "./configDocument.js";
import { resolveWebhooks } from "./resolveWebhooks.js";
import { leastTokenLength, MissingSecret, resolveSecret, tokenPattern } from "./secretValue.js";

type Given = Partial<FileParameters>;

/** Reads tokens and secrets from the environment if the file names variables. Throws PgTaskError CONFIG_INVALID. */
export function resolveHttpSecrets(given: Given, file: string | null, env: NodeJS.ProcessEnv): Given {
  const tokens = secretParameters.flatMap((name) => {
    const value: unknown = given[name];
    return value === undefined ? [] : [[name, resolveToken(name, value, file, env)] as const];
  });
  return { ...given, ...Object.fromEntries(tokens), ...ofWebhooks(given, file, env) };
}

export const withoutHttpSecrets = (given: Given, file: string | null): Given => ({
  ...given,
  ...Object.fromEntries(secretParameters.map((name) => [name, ""])),
  ...ofWebhooks(given, file, null),
});

function ofWebhooks(
  { "pg_http.webhooks": webhooks }: Given,
  file: string | null,
  env: NodeJS.ProcessEnv | null,
): Given {
  return webhooks === undefined ? {} : { "pg_http.webhooks": resolveWebhooks(webhooks, file, env) };
}

function resolveToken(name: string, value: unknown, file: string | null, env: NodeJS.ProcessEnv): string {
  let token = "";
  try {
    token = resolveSecret(value, env, "token");
  } catch (error) {
    if (!(error instanceof MissingSecret)) throw error;
    throw invalidConfiguration(file, [`${name}: ${error.message}`]);
  }
  if (tokenPattern.test(token)) return token;
  const problem =
    token.length < leastTokenLength ? `one of ${token.length} characters` : "one with spaces or other characters";
  throw invalidConfiguration(file, [
    `${name}: expected a token of at least ${leastTokenLength} visible ASCII characters, got ${problem}: a command such as "openssl rand -base64 24" makes one`,
  ]);
}

/**
 * Requires a token if the page listens on another address than loopback, and different tokens, because the read-only
 * one could otherwise change tasks.
 *
 * @throws PgTaskError CONFIG_INVALID
 */
export function checkTokens(parameters: FileParameters, file: string | null): void {
  const { "pg_http.listen": listen, "pg_http.token": token, "pg_http.readonly": readOnly } = parameters;
  if (readOnly !== "" && readOnly === token) {
    throw invalidConfiguration(file, ["pg_http.readonly: expected another token than pg_http.token, got the same"]);
  }
  const address = parseListen(listen);
  if (address === null || isLoopback(address.host) || token !== "" || readOnly !== "") return;
  throw invalidConfiguration(file, [
    `pg_http.token: expected a token, since pg_http.listen is ${JSON.stringify(listen)}, which other machines can reach, got none: set a token, or listen on 127.0.0.1`,
  ]);
}
