import { mask } from "../logRedaction.js";

/** A URL that is told the ends of tasks, as `pg_http.webhooks` lists it. */
export interface Webhook {
  readonly url: string;
  /** Empty if it is not needed (`lazySecrets`). */
  readonly secret: string;
  /** Names the webhook in the database, logs and metrics, where the URL, which may be a secret, is not shown. */
  readonly name: string;
  readonly states: readonly EndState[];
  /** Null for all. */
  readonly groups: readonly string[] | null;
  readonly tables: readonly string[] | null;
}

/** A URL that is told the ends of tasks. */
export interface WebhookOptions {
  /** Without user and password. */
  readonly url: string;
  /** With which messages are signed: `whsec_` and 24 to 64 bytes in base64. */
  readonly secret:
    | string
    | {
        /** Name of the environment variable that holds it. */
        readonly env: string;
      };
  /** What it is called in logs and metrics. Default: the host of the URL. */
  readonly name?: string;
  /** The states that are told. Default: all. */
  readonly states?: readonly EndState[];
  /** The groups of which ends are told. Default: all. */
  readonly groups?: readonly string[];
  /** The tables of which ends are told, such as `public.task`. Default: all. */
  readonly tables?: readonly string[];
}

export const endStates = ["DONE", "FAIL", "GONE", "STOP"] as const;

/** A state in which a task has ended. */
type EndState = (typeof endStates)[number];

/** As the specification Standard Webhooks demands it: 24 to 64 bytes. */
export const webhookSecretPattern = /^whsec_(?:[A-Za-z0-9+/]{4}){8,21}(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?$/;

export const webhookUrlPattern = /^https?:\/\/[^/?#@\s]+(?:[/?#]\S*)?$/;

export const webhookSecretText =
  '"whsec_" with 24 to 64 random bytes in base64 (such as "whsec_$(openssl rand -base64 32)" in a shell)';

/** What each key of a webhook may have. */
export const webhookKeys: Readonly<Record<keyof WebhookOptions, string>> = {
  url: "an http or https URL without user and password",
  secret: `${webhookSecretText}, or {"env": "NAME"} for the value of an environment variable`,
  name: "a name of 1 to 63 bytes",
  states: `a list of ${endStates.map((state) => `"${state}"`).join(", ")}`,
  groups: "a list of names of groups",
  tables: 'a list of tables, such as "public.task", or "shop.public.task" with the database',
};

/** The path of a URL can be a secret, as with chats. */
export const maskWebhook = (webhook: Webhook): Webhook => ({
  ...webhook,
  url: `${new URL(webhook.url).origin}/${mask}`,
  secret: mask,
});

/** The webhooks of a table. */
export const webhooksOf = (
  webhooks: readonly Webhook[],
  { database, schema, table }: { readonly database: string; readonly schema: string; readonly table: string },
): readonly Webhook[] =>
  webhooks.filter(
    ({ tables }) =>
      tables === null || tables.includes(`${schema}.${table}`) || tables.includes(`${database}.${schema}.${table}`),
  );
