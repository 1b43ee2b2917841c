import { invalidConfiguration } from "./configDocument.js";
import { MissingSecret, resolveSecret } from "./secretValue.js";
import { endStates, webhookSecretPattern, webhookSecretText, type Webhook, type WebhookOptions } from "./webhooks.js";

/**
 * Gives what the file leaves out its default, and reads secrets from the environment, unless they are not needed.
 *
 * @throws PgTaskError CONFIG_INVALID
 */
export function resolveWebhooks(
  given: readonly (WebhookOptions | Webhook)[],
  file: string | null,
  env: NodeJS.ProcessEnv | null,
): readonly Webhook[] {
  const problems: string[] = [];
  const names = new Set<string>();
  const webhooks = given.map((each, index): Webhook => {
    const at = `pg_http.webhooks[${index}]`;
    const { url, name = new URL(url).host, states = endStates, groups = null, tables = null } = each;
    if (names.has(name))
      problems.push(`${at}.name: expected another name than that of the webhooks before, got ${JSON.stringify(name)}`);
    names.add(name);
    const secret = env === null ? "" : readSecret(each.secret, env, (text) => problems.push(`${at}.secret: ${text}`));
    return { url, secret, name, states: endStates.filter((state) => states.includes(state)), groups, tables };
  });
  if (problems.length > 0) throw invalidConfiguration(file, problems);
  return webhooks;
}

function readSecret(given: unknown, env: NodeJS.ProcessEnv, report: (problem: string) => void): string {
  try {
    const secret = resolveSecret(given, env, "secret");
    if (!webhookSecretPattern.test(secret)) report(`expected ${webhookSecretText}, got another value`);
    return secret;
  } catch (error) {
    if (!(error instanceof MissingSecret)) throw error;
    report(error.message);
    return "";
  }
}
