import type { Client } from "../../src/shared/postgres/client.js";

const channel = "test_changes";

/** How soon what announces no change is looked at again, in ms. */
const lookAgainMs = 50;

/** Makes a table announce every statement that changed it, whoever's it is. */
export async function announceChanges(client: Client, table = "public.task"): Promise<void> {
  await client.query(`
    CREATE FUNCTION public.test_announce() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM pg_catalog.pg_notify('${channel}', ''); RETURN NULL; END $$;
    CREATE TRIGGER test_announce AFTER INSERT OR UPDATE OR DELETE ON ${table}
      FOR EACH STATEMENT EXECUTE FUNCTION public.test_announce()`);
}

/**
 * The rows of a query once they are as wanted: looked at now, and after each change that
 * `announceChanges` makes known. There is no limit but the test's own.
 */
export async function until<Row extends object>(
  client: Client,
  query: string,
  wanted: (rows: Row[]) => boolean,
): Promise<Row[]> {
  let changed = false;
  let wake: (() => void) | null = null;
  const hear = (): void => {
    changed = true;
    wake?.();
  };
  client.on("notification", hear);
  try {
    await client.query(`LISTEN ${channel}`);
    for (;;) {
      changed = false;
      const { rows } = await client.query<Row>(query);
      if (wanted(rows)) return rows;
      if (!changed) await new Promise<void>((resolve) => (wake = resolve));
    }
  } finally {
    client.off("notification", hear);
  }
}

/** As `until`, for what announces no change: pg_stat_activity, pg_locks. */
export async function eventually<Row extends object>(
  client: Client,
  query: string,
  wanted: (rows: Row[]) => boolean,
): Promise<Row[]> {
  for (;;) {
    const { rows } = await client.query<Row>(query);
    if (wanted(rows)) return rows;
    await new Promise((resolve) => setTimeout(resolve, lookAgainMs));
  }
}
