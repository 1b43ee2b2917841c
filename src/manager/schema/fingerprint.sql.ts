import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Entry } from "../../shared/config/types.js";
import { packageFile } from "../../shared/packageFile.js";
import type { Client } from "../../shared/postgres/client.js";
import { calendarNames, calendarText } from "./calendar.js";
import { ownComment, statements } from "./migrations.js";
import { objectNames, type TaskTable } from "./taskTable.js";
import { toldWebhooks } from "./webhooks.js";

/** The comment of the function `planned`. The fingerprint with which the table was last found in order may follow. */
const recordComment = `${ownComment}planned`;
const recordPrefix = `${recordComment}, checked `;

export interface Subject {
  readonly table: TaskTable;
  readonly entry: Pick<Entry, "create" | "users" | "parameters" | "target">;
}

export interface FoundTable {
  readonly oid: number;
  /** Channels of notifications, as `listenToTable` uses them. */
  readonly channels: readonly string[];
  /** Type of the column `state`, quoted. Null if it is the enum `state` of the table's schema. */
  readonly stateType: string | null;
  /** A digest of all that `ensureTable` depends on. It differs after any change, also one that does not matter. */
  readonly fingerprint: string;
  /** Whether `ensureTable` has ended with this fingerprint, so that it would change nothing, and report nothing. */
  readonly isInOrder: boolean;
  readonly mayRecord: boolean;
}

/** Digest of the code of this pg-task. Every build checks each table once. */
let code: string | null = null;

function codeDigest(): string {
  code ??= digest([
    readFileSync(new URL("thread.cjs", packageFile("dist/src/manager/"))),
    statements.join(";"),
    calendarText,
  ]);
  return code;
}

function digest(parts: readonly (string | Buffer)[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest("hex").slice(0, 16);
}

/** What of the entry `ensureTable` depends on. */
const wanted = ({ entry, table }: Subject): string =>
  JSON.stringify([
    entry.create,
    toldWebhooks(table, entry),
    Object.entries(entry.parameters)
      .filter(([name]) => name.startsWith("pg_task.") || name === "pg_conf.name")
      .toSorted(([one], [other]) => (one < other ? -1 : 1)),
  ]);

interface FoundRow extends Omit<FoundTable, "fingerprint" | "isInOrder"> {
  readonly place: number;
  readonly state: string;
  readonly recorded: string | null;
}

/**
 * Reads the fingerprints of tables, with one statement for all. Null for tables that do not exist, that are partitioned,
 * or whose tasks run as their users: these are always checked.
 */
export async function readFingerprints(client: Client, subjects: readonly Subject[]): Promise<(FoundTable | null)[]> {
  const given = subjects.map(({ table }, place) => ({
    place,
    schema: table.schema,
    table: table.table,
    names: [...objectNames(table.table), ...calendarNames],
    planned: table.planned,
    listened: [table.table, table.pauseTable, table.homeTable],
  }));
  const { rows } = await client.query<FoundRow>(statement, [JSON.stringify(given)]);
  const byPlace = new Map(rows.map((row) => [row.place, row]));
  return subjects.map((subject, place) => {
    const row = byPlace.get(place);
    if (row === undefined || subject.entry.users) return null;
    const { place: _, state, recorded, ...found } = row;
    const fingerprint = digest([codeDigest(), wanted(subject), state]);
    return { ...found, fingerprint, isInOrder: recorded === `${recordPrefix}${fingerprint}` };
  });
}

/** Records that the table is in order as it is now. */
export async function recordFingerprint(client: Client, { qualifiedPlanned }: TaskTable, { fingerprint }: FoundTable) {
  await client.query(`COMMENT ON FUNCTION ${qualifiedPlanned}(text) IS '${recordPrefix}${fingerprint}'`);
}

/** The catalogue's rows of a table and of what belongs to it. Any change of one gives it another `xmin`. */
const rowsByTable = (
  [
    ["column", "pg_attribute", "attrelid", "e.attnum"],
    ["default", "pg_attrdef", "adrelid", "e.oid"],
    ["constraint", "pg_constraint", "conrelid", "e.oid"],
    ["trigger", "pg_trigger", "tgrelid", "e.oid"],
    ["rule", "pg_rewrite", "ev_class", "e.oid"],
    ["policy", "pg_policy", "polrelid", "e.oid"],
  ] as const
).map(
  ([kind, catalogue, column, key]) =>
    `SELECT r.place, concat_ws(' ', '${kind}', e.${column}, ${key}, e.xmin) FROM relation AS r JOIN ${catalogue} AS e ON e.${column} = r.oid`,
);

/**
 * Of `pg_class`, only some columns count: TRUNCATE, which empties the ledgers, changes others. The functions of schedules
 * belong to all tables of their schema.
 */
const statement = `
WITH wanted AS MATERIALIZED (
  SELECT w.place, w.names, w.planned, w.listened, c.oid, n.oid AS schema, concat_ws(' ', n.oid, n.nspname, n.nspowner, n.nspacl) AS of_schema
  FROM json_to_recordset($1::json) AS w(place integer, schema text, "table" text, names text[], planned text, listened text[])
    JOIN pg_namespace AS n ON n.nspname = w.schema
    JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = w."table" AND c.relkind = 'r'
), object AS MATERIALIZED (
  SELECT w.place, w.schema, o.name::name AS name, o.name = w.planned AS has_record FROM wanted AS w, unnest(w.names) AS o(name)
), relation AS MATERIALIZED (
  SELECT w.place, w.oid FROM wanted AS w
  UNION SELECT o.place, c.oid FROM object AS o JOIN pg_class AS c ON c.relnamespace = o.schema AND c.relname = o.name AND c.relkind <> 'i'
), routine AS MATERIALIZED (
  SELECT o.place, p.oid, p.xmin AS version, p.proowner AS owner, o.has_record
  FROM object AS o JOIN pg_proc AS p ON p.pronamespace = o.schema AND p.proname = o.name
), fact AS (
  SELECT r.place, concat_ws(' ', 'relation', c.oid, c.relname, c.relkind, c.relowner, c.relacl, c.reloptions, c.relpersistence,
    c.relrowsecurity, c.relforcerowsecurity, c.relispartition) AS text
  FROM relation AS r JOIN pg_class AS c ON c.oid = r.oid
  UNION ALL
  ${rowsByTable.join("\n  UNION ALL\n  ")}
  UNION ALL
  SELECT r.place, concat_ws(' ', 'index', i.indexrelid, c.relname, i.xmin)
  FROM relation AS r JOIN pg_index AS i ON i.indrelid = r.oid JOIN pg_class AS c ON c.oid = i.indexrelid
  UNION ALL
  SELECT w.place, concat_ws(' ', 'type', a.attnum, t.oid, t.xmin)
  FROM wanted AS w JOIN pg_attribute AS a ON a.attrelid = w.oid AND a.attnum > 0 JOIN pg_type AS t ON t.oid = a.atttypid
  UNION ALL
  SELECT place, concat_ws(' ', 'routine', oid, version) FROM routine
  UNION ALL
  SELECT r.place, concat_ws(' ', 'comment', d.objoid, d.xmin)
  FROM routine AS r JOIN pg_description AS d ON d.objoid = r.oid AND d.classoid = 'pg_proc'::regclass
  WHERE NOT r.has_record
  UNION ALL
  SELECT o.place, concat_ws(' ', 'owner', o.owner, pg_has_role(o.owner, 'USAGE'), a.rolsuper)
  FROM (SELECT DISTINCT place, owner FROM routine) AS o LEFT JOIN pg_roles AS a ON a.oid = o.owner
  UNION ALL
  SELECT w.place, concat_ws(' ', 'session', w.of_schema, current_user, s.version, s.zone, d.oid, d.datdba)
  FROM wanted AS w, pg_database AS d, (SELECT current_setting('server_version_num') AS version, current_setting('TimeZone') AS zone) AS s
  WHERE d.datname = current_database()
), state AS MATERIALIZED (
  SELECT place, sum(hashtextextended(text, 0)::numeric)::text AS state FROM fact GROUP BY place
)
SELECT w.place, w.oid, s.state, f.recorded, coalesce(f.is_owner, false) AS "mayRecord",
  (SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
    WHERE a.attrelid = w.oid AND a.attname = 'state' AND NOT (t.typnamespace = w.schema AND t.typname = 'state')) AS "stateType",
  ARRAY(SELECT concat('pg_task_', c.oid) FROM unnest(w.listened) WITH ORDINALITY AS l(name, nth)
    JOIN pg_class AS c ON c.relnamespace = w.schema AND c.relname = l.name ORDER BY l.nth) AS channels
FROM wanted AS w JOIN state AS s ON s.place = w.place
LEFT JOIN LATERAL (
  SELECT d.description AS recorded, pg_has_role(p.proowner, 'USAGE') AS is_owner FROM pg_proc AS p
    LEFT JOIN pg_description AS d ON d.objoid = p.oid AND d.classoid = 'pg_proc'::regclass
  WHERE p.pronamespace = w.schema AND p.proname = w.planned AND p.pronargs = 1 LIMIT 1
) AS f ON true`;
