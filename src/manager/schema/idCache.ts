import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "./taskTable.js";

export interface IdCache {
  readonly sequence: string;
  /** How many ids a session reserves at a time, 2 or more. */
  readonly size: number;
}

/**
 * Null if ids are in the order of the INSERTs. Otherwise, a task may have a smaller id than one that another session
 * has inserted before, and cannot wait for it.
 */
export async function readIdCache(client: Client, { qualified }: TaskTable): Promise<IdCache | null> {
  const { rows } = await client.query<IdCache>(
    `SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS sequence, s.seqcache::float8 AS size
     FROM pg_catalog.pg_sequence AS s JOIN pg_catalog.pg_class AS c ON c.oid = s.seqrelid
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE s.seqcache > 1 AND (s.seqrelid = pg_catalog.pg_get_serial_sequence($1, 'id')::pg_catalog.regclass
       OR s.seqrelid IN (
         SELECT d.refobjid FROM pg_catalog.pg_depend AS d
         JOIN pg_catalog.pg_attrdef AS e ON e.oid = d.objid AND d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass
         JOIN pg_catalog.pg_attribute AS a ON a.attrelid = e.adrelid AND a.attnum = e.adnum
         WHERE e.adrelid = $1::pg_catalog.regclass AND a.attname = 'id' AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass))
     ORDER BY s.seqcache DESC LIMIT 1`,
    [qualified],
  );
  return rows[0] ?? null;
}
