import type { Client } from "../../shared/postgres/client.js";
import { maxRequests, outboxLimits } from "../model/tuning.js";
import type { TaskTable } from "../schema/taskTable.js";

/** The end of a task, which a webhook is to be told. Times are as the server writes them in JSON. */
export interface End {
  /** That of the row in the outbox. Ids are decimal numbers. */
  readonly id: string;
  readonly task: string;
  readonly state: string;
  readonly group: string;
  readonly key: string | null;
  readonly plan: string | null;
  readonly start: string | null;
  readonly stop: string;
  readonly error: string | null;
  readonly created: string;
  /** How often it has been sent in vain. */
  readonly tries: number;
}

export interface WebhookState {
  readonly name: string;
  /** How many requests in a row have failed. */
  readonly failures: number;
  /** What can be sent now. */
  readonly due: readonly End[];
  /** Time until there is more to send, in ms. Null if there is nothing, except what is under way or can be sent now. */
  readonly nextMs: number | null;
}

/**
 * Reads what can be sent. After a failure, one request at a time is sent, when the pause is over.
 *
 * @param sending how many requests are under way to each webhook
 * @param except ids of what is under way
 */
export async function readDueEnds(
  client: Client,
  { qualifiedOutbox, qualifiedWebhooks }: TaskTable,
  sending: ReadonlyMap<string, number>,
  except: readonly string[],
): Promise<WebhookState[]> {
  const { rows } = await client.query<WebhookState>({
    name: "due ends",
    text: `
SELECT w.name, w.failures, coalesce(d.due, '[]') AS due,
  (extract(epoch FROM greatest(w.next, n.next) - now()) * 1000)::float8 AS "nextMs"
FROM unnest($1::text[], $2::integer[]) AS g(name, sending) JOIN ${qualifiedWebhooks} AS w ON w.name = g.name
CROSS JOIN LATERAL (
  SELECT json_agg(json_build_object('id', o.id::text, 'task', o.task::text, 'state', o.state, 'group', o."group", 'key', o.key, 'plan', o.plan,
    'start', o.start, 'stop', o.stop, 'error', o.error, 'created', o.created, 'tries', o.tries) ORDER BY o.next) AS due, array_agg(o.id) AS ids
  FROM (
    SELECT * FROM ${qualifiedOutbox} AS o WHERE o.webhook = w.name AND o.next <= now() AND o.id <> ALL ($3::bigint[])
    ORDER BY o.next
    LIMIT CASE WHEN w.next > now() THEN 0 ELSE greatest(0, CASE WHEN w.failures > 0 THEN 1 ELSE ${maxRequests} END - g.sending) END
  ) AS o
) AS d LEFT JOIN LATERAL (
  SELECT o.next FROM ${qualifiedOutbox} AS o WHERE o.webhook = w.name AND o.id <> ALL ($3::bigint[]) AND o.id <> ALL (coalesce(d.ids, '{}'))
  ORDER BY o.next LIMIT 1
) AS n ON true`,
    values: [[...sending.keys()], [...sending.values()], except],
  });
  return rows;
}

/** What the requests to a webhook have told of it. */
export interface WebhookOutcome {
  readonly name: string;
  readonly failures: number;
  /** Null if it has answered. */
  readonly pauseMs: number | null;
  readonly error: string | null;
}

/** Deletes what was accepted, and puts off what was not. */
export async function writeOutcomes(
  client: Client,
  { qualifiedOutbox, qualifiedWebhooks }: TaskTable,
  accepted: readonly string[],
  failed: readonly { readonly id: string; readonly pauseMs: number }[],
  webhooks: readonly WebhookOutcome[],
): Promise<void> {
  await client.query({
    name: "told ends",
    text: `
WITH accepted AS (
  DELETE FROM ${qualifiedOutbox} WHERE id = ANY ($1::bigint[])
), failed AS (
  UPDATE ${qualifiedOutbox} AS o SET tries = o.tries + 1, next = now() + interval '1 ms' * f.ms
  FROM unnest($2::bigint[], $3::float8[]) AS f(id, ms) WHERE o.id = f.id
)
UPDATE ${qualifiedWebhooks} AS w SET failures = h.failures, next = now() + interval '1 ms' * h.ms,
  error = coalesce(h.error, w.error), failed = CASE WHEN h.error IS NULL THEN w.failed ELSE now() END
FROM unnest($4::text[], $5::integer[], $6::float8[], $7::text[]) AS h(name, failures, ms, error) WHERE w.name = h.name`,
    values: [
      accepted,
      failed.map(({ id }) => id),
      failed.map(({ pauseMs }) => pauseMs),
      webhooks.map(({ name }) => name),
      webhooks.map(({ failures }) => failures),
      webhooks.map(({ pauseMs }) => pauseMs),
      webhooks.map(({ error }) => error),
    ],
  });
}

/** Deletes what is too old, and the oldest of what is too much. Returns the webhooks of which something was dropped. */
export async function limitOutbox(
  client: Client,
  { qualifiedOutbox }: TaskTable,
  webhooks: readonly string[],
): Promise<{ readonly name: string; readonly dropped: number }[]> {
  const { rows } = await client.query<{ name: string; dropped: number }>({
    name: "limit outbox",
    text: `
WITH bound AS MATERIALIZED (
  SELECT g.name, (SELECT m.id FROM ${qualifiedOutbox} AS m WHERE m.webhook = g.name ORDER BY m.id DESC OFFSET ${outboxLimits.ends} LIMIT 1) AS id
  FROM unnest($1::text[]) AS g(name)
), dropped AS (
  DELETE FROM ${qualifiedOutbox} AS o USING bound AS b
  WHERE o.webhook = b.name AND (o.id <= b.id OR o.created < now() - interval '${outboxLimits.days} days')
  RETURNING o.webhook
)
SELECT webhook AS name, count(*)::integer AS dropped FROM dropped GROUP BY webhook ORDER BY webhook`,
    values: [webhooks],
  });
  return rows;
}
