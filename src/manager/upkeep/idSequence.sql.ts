import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "../schema/taskTable.js";

/** A sequence that would have fewer ids left is not set forward: some id is far ahead of all others. */
const minLeft = 1_000;

interface Advanced {
  readonly sequence: string;
  readonly from: string;
  readonly to: string;
}

/**
 * Sets the sequence of the ids forward if the table has larger ids, in steps of its increment, so that servers that
 * share the ids out among them still do.
 *
 * @param anyStep whether to do so even if the increment is not 1. Then a larger id can be that of another server, which
 *   does no harm.
 * @returns null if the sequence was not changed, or if the ids come from elsewhere
 */
export async function advanceIdSequence(client: Client, table: TaskTable, anyStep: boolean): Promise<Advanced | null> {
  const { rows: found } = await client.query<{ schema: string; name: string }>(
    `SELECT n.nspname AS schema, c.relname AS name
     FROM pg_attribute AS a
       LEFT JOIN pg_attrdef AS f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
       JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND d.refclassid = 'pg_class'::regclass
         OR d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid
           AND d.refobjsubid = a.attnum AND d.deptype = 'i'
       JOIN pg_class AS c ON c.oid IN (d.objid, d.refobjid) AND c.relkind = 'S'
       JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE a.attrelid = $1::regclass AND a.attname = 'id' LIMIT 1`,
    [table.qualified],
  );
  const [sequence] = found;
  if (sequence === undefined) return null;
  const name = `${identifier(sequence.schema)}.${identifier(sequence.name)}`;
  const { rows } = await client.query<{ from: string; to: string }>(
    `SELECT s.last_value::text AS "from",
       setval($1::regclass, s.last_value + ceil((m.id - s.last_value)::numeric / q.seqincrement)::bigint * q.seqincrement)::text AS "to"
     FROM ${name} AS s, pg_sequence AS q, (SELECT max(id)::bigint AS id FROM ${table.qualified}) AS m
     WHERE q.seqrelid = $1::regclass AND m.id >= s.last_value + CASE WHEN s.is_called THEN 1 ELSE 0 END
       AND CASE WHEN q.seqincrement > 0 THEN q.seqmax - m.id > ${minLeft} * q.seqincrement ELSE false END
       AND (q.seqincrement = 1 OR $2::boolean)`,
    [name, anyStep],
  );
  const [advanced] = rows;
  return advanced === undefined ? null : { sequence: `${sequence.schema}.${sequence.name}`, ...advanced };
}
