/** Notifies the manager of a change of the table, unless `pg_task.notify` is off, as the trigger that wakes it does. */
export const notifyManager = `PERFORM pg_notify(concat('pg_task_', coalesce(pg_partition_root(TG_RELID)::oid, TG_RELID)), '')
      WHERE lower(coalesce(current_setting('pg_task.notify', true), '')) <> ALL (ARRAY['off', 'false', 'no', '0'])`;
