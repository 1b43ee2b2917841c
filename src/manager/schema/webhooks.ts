import { isDeepStrictEqual } from "node:util";
import type { Entry } from "../../shared/config/types.js";
import { webhooksOf } from "../../shared/config/webhooks.js";
import type { Client } from "../../shared/postgres/client.js";
import { literal } from "../../shared/postgres/quoting.js";
import { render } from "./migrations.js";
import type { TaskTable } from "./taskTable.js";

type Configured = Pick<Entry, "parameters" | "target">;

/** What the database has to know of a webhook: neither URL nor secret. */
type Told = readonly [name: string, states: readonly string[], groups: readonly string[] | null];

export const webhooksOfTable = ({ schema, table }: TaskTable, { parameters, target }: Configured) =>
  webhooksOf(parameters["pg_http.webhooks"], { database: target.database, schema, table });

/** In the order of their names. */
export const toldWebhooks = (table: TaskTable, entry: Configured): readonly Told[] =>
  webhooksOfTable(table, entry)
    .map(({ name, states, groups }): Told => [name, states, groups])
    .toSorted(([one], [other]) => (one < other ? -1 : 1));

const finalStates = "state::text <> ALL (ARRAY['PLAN', 'TAKE', 'WORK'])";

/**
 * The triggers write ends to the outbox. A row with an owner that the manager deletes is that of a task that has just
 * ended as DONE.
 */
const triggers = {
  webhookUpdateTrigger: `AFTER UPDATE OF state ON :"schema".:"table" FOR EACH ROW
    WHEN (NEW.${finalStates} AND NEW.state::text <> OLD.state::text)`,
  webhookDeleteTrigger: `AFTER DELETE ON :"schema".:"table" FOR EACH ROW
    WHEN (OLD.owner IS NOT NULL AND current_setting('pgtask.manager', true) = 'on')`,
} as const;

export interface WebhookChange {
  /** The names of the webhooks if anything was changed, else null. */
  readonly changed: readonly string[] | null;
  /** How many ends were to be told to webhooks that are no longer in the configuration. */
  readonly dropped: number;
}

/**
 * Lets the ends of tasks be written to the outbox for the webhooks of the configuration. A table without webhooks has no
 * triggers for that, so that they cost nothing. What was still to be told to webhooks that are gone is deleted.
 */
export async function ensureWebhooks(client: Client, table: TaskTable, entry: Configured): Promise<WebhookChange> {
  const { qualified, qualifiedOutbox, qualifiedWebhooks, webhookDeleteTrigger, webhookUpdateTrigger } = table;
  const wanted = toldWebhooks(table, entry);
  const { rows } = await client.query<{ triggers: readonly string[] }>(
    `SELECT ARRAY(SELECT t.tgname::text FROM pg_catalog.pg_trigger AS t
       WHERE t.tgrelid = $1::regclass AND t.tgname IN ($2, $3)) AS triggers`,
    [qualified, webhookUpdateTrigger, webhookDeleteTrigger],
  );
  const found = rows[0]?.triggers ?? [];
  const areWanted = wanted.length > 0;
  if (!areWanted && found.length === 0) return { changed: null, dropped: 0 };
  const wrong = (["webhookUpdateTrigger", "webhookDeleteTrigger"] as const).filter(
    (key) => found.includes(table[key]) !== areWanted,
  );
  if (wrong.length === 0 && isDeepStrictEqual(await readTold(client, table), wanted))
    return { changed: null, dropped: 0 };
  for (const key of wrong) {
    const change = areWanted
      ? `CREATE TRIGGER :"${key}" ${triggers[key]} EXECUTE FUNCTION :"schema".:"webhookFunction"()`
      : `DROP TRIGGER :"${key}" ON :"schema".:"table"`;
    await client.query(render(change, table));
  }
  const names = `ARRAY(SELECT e ->> 0 FROM json_array_elements(${literal(JSON.stringify(wanted))}) AS e)`;
  await client.query(
    `DELETE FROM ${qualifiedWebhooks} WHERE name <> ALL (${names});
     INSERT INTO ${qualifiedWebhooks} AS w (name, states, groups)
     SELECT e ->> 0, ARRAY(SELECT json_array_elements_text(e -> 1)), CASE WHEN json_typeof(e -> 2) = 'array' THEN ARRAY(SELECT json_array_elements_text(e -> 2)) END
     FROM json_array_elements(${literal(JSON.stringify(wanted))}) AS e
     ON CONFLICT (name) DO UPDATE SET states = excluded.states, groups = excluded.groups`,
  );
  const { rowCount } = await client.query(`DELETE FROM ${qualifiedOutbox} WHERE webhook <> ALL (${names})`);
  return { changed: wanted.map(([name]) => name), dropped: rowCount ?? 0 };
}

async function readTold(client: Client, { qualifiedWebhooks }: TaskTable): Promise<unknown> {
  const { rows } = await client.query<{ told: unknown }>(
    `SELECT coalesce(json_agg(json_build_array(name, states, groups) ORDER BY name COLLATE "C"), '[]') AS told FROM ${qualifiedWebhooks}`,
  );
  return rows[0]?.told;
}

/** What the original has not told yet, a copy must not tell. */
export async function emptyOutbox(client: Pick<Client, "query">, { qualifiedOutbox }: TaskTable): Promise<void> {
  await client.query(`DELETE FROM ${qualifiedOutbox}`);
}
