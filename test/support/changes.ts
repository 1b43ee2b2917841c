import type { Client } from "../../src/shared/postgres/client.js";

const channel = "test_changes";

/** Interval for polling what announces no changes, in ms. */
const pollMs = 50;

/** Makes a table notify after every statement that changes it. */
export async function announceChanges(client: Client, table = "public.task"): Promise<void> {
  await client.query(`
    CREATE FUNCTION public.test_announce() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM pg_catalog.pg_notify('${channel}', ''); RETURN NULL; END $$;
    CREATE TRIGGER test_announce AFTER INSERT OR UPDATE OR DELETE ON ${table}
      FOR EACH STATEMENT EXECUTE FUNCTION public.test_announce()`);
}

/**
 * Resolves to the rows of a query once they satisfy the condition: checked now and after each change that
 * `announceChanges` notifies of. Limited only by the test's own timeout.
 */
export async function until<Row extends object>(
  client: Client,
  query: string,
  wanted: (rows: Row[]) => boolean,
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
    }
  } finally {
    client.off("notification", onNotification);
  }
}

/** As `until`, but polls what announces no changes, such as pg_stat_activity and pg_locks. */
export async function eventually<Row extends object>(
  client: Client,
  query: string,
  wanted: (rows: Row[]) => boolean,
): Promise<Row[]> {
  for (;;) {
    const { rows } = await client.query<Row>(query);
    if (wanted(rows)) return rows;
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
}
