import type { Queryable } from "../../shared/postgres/client.js";

/** The server's queue of notifications, which all databases share. */
export interface NotificationQueue {
  /** How full the queue is, from 0 to 1. */
  readonly usage: number;
  /**
   * The client session with the oldest open transaction. If it listens, it keeps the queue from being emptied. Null if
   * there is none, or none that this role may see.
   */
  readonly oldest: { readonly pid: number; readonly description: string } | null;
}

export async function readNotificationQueue(client: Queryable): Promise<NotificationQueue> {
  const { rows } = await client.query<{ usage: number; pid: number | null; description: string }>(
    `SELECT pg_catalog.pg_notification_queue_usage() AS usage, a.pid, a.description
     FROM (VALUES (1)) AS one LEFT JOIN (
       SELECT pid, pg_catalog.format('server process %s (%s in %s, %s), in a transaction since %s',
         pid, usename, datname, application_name, xact_start) AS description
       FROM pg_catalog.pg_stat_activity
       WHERE backend_type OPERATOR(pg_catalog.=) 'client backend' AND xact_start IS NOT NULL
         AND pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
       ORDER BY xact_start LIMIT 1) AS a ON true`,
  );
  const { usage = 0, pid = null, description = "" } = rows[0] ?? {};
  return { usage, oldest: pid === null ? null : { pid, description } };
}
