import { setTimeout as pause } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";

const channel = "test_changes";

/** Interval at which `eventually` polls, in ms. */
const pollMs = 50;
/** A query with more rows than this is executed again only after a pause, in ms, which covers further changes. */
const many = { rows: 50, pauseMs: 20 };

const isOne = ({ length }: readonly object[]): boolean => length === 1;

/** Makes a table notify after every statement that changes it. */
export async function announceChanges(client: Client, table = "public.task"): Promise<void> {
  await client.query(`
    CREATE FUNCTION public.test_announce() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM pg_catalog.pg_notify('${channel}', ''); RETURN NULL; END $$;
    CREATE TRIGGER test_announce AFTER INSERT OR UPDATE OR DELETE ON ${table}
      FOR EACH STATEMENT EXECUTE FUNCTION public.test_announce()`);
}

/**
 * Resolves with the rows of a query when they satisfy the condition. The query is executed now, and after each change
 * that `announceChanges` announces. By default, there must be one row. Only the test's own time limit ends the wait.
 */
export async function until<Row extends object>(
  client: Client,
  query: string,
  wanted: (rows: Row[]) => boolean = isOne,
): Promise<Row[]> {
  let changed = false;
  let wake: (() => void) | null = null;
  const onNotification = (): void => {
    changed = true;
    wake?.();
  };
  client.on("notification", onNotification);
  try {
    await client.query(`LISTEN ${channel}`);
    for (;;) {
      changed = false;
      const { rows } = await client.query<Row>(query);
      if (wanted(rows)) return rows;
      if (!changed) await new Promise<void>((resolve) => (wake = resolve));
      if (rows.length > many.rows) await pause(many.pauseMs);
    }
  } finally {
    client.off("notification", onNotification);
  }
}

/**
 * Does the same as `until`, but polls. For relations that announce no changes, such as pg_stat_activity and pg_locks.
 */
export async function eventually<Row extends object>(
  client: Client,
  query: string,
  wanted: (rows: Row[]) => boolean = isOne,
): Promise<Row[]> {
  for (;;) {
    const { rows } = await client.query<Row>(query);
    if (wanted(rows)) return rows;
    await pause(pollMs);
  }
}
