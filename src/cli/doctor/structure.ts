import { describeMissingColumns, restoreStatement } from "../../manager/schema/adoption/addColumns.js";
import { queueIndexes } from "../../manager/schema/adoption/indexes.js";
import { describeOtherPlace, latestVersion } from "../../manager/schema/migrations.js";
import { takenUserFunctions } from "../../manager/schema/functions/ensureUserFunctions.js";
import { duplicateKeysQuery, readKeyProblem } from "../../manager/schema/keyIndex.js";
import { hasUsers } from "../../tasks/hasUsers.js";
import type { ColumnName } from "../../shared/taskColumns.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { FileParameters } from "../../shared/config/parameterTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { fail, ok, warn, type Finding, type TableState } from "../inspection.js";

export function checkMigration(table: TaskTable, { version, isElsewhere, foreign }: TableState): Finding {
  if (version > 0 && isElsewhere) return warn("table", describeOtherPlace(table), "pg-task start replaces them");
  if (version === latestVersion) return ok("table", `${table.qualified} is up to date`);
  const text = `${table.qualified} is at version ${version}, this pg-task knows ${latestVersion}`;
  if (version > latestVersion) return fail("table", text, "upgrade this pg-task");
  if (foreign.length > 0) {
    const problems = foreign.map(({ problem }) => problem).join("; ");
    return fail("table", `${table.qualified}: ${problems}`, foreign.map(({ statement }) => statement).join("; "));
  }
  return warn("table", text, "pg-task start migrates it");
}

export function checkColumns(table: TaskTable, { lost }: TableState, parameters: FileParameters): Finding {
  if (lost.length === 0) return ok("columns", "all present");
  return fail(
    "columns",
    `${table.qualified}: ${describeMissingColumns(lost)}: its manager goes on until a statement needs ${lost.length === 1 ? "it" : "one of them"}, usually at its next start at the latest; from then on, no task runs`,
    // The column hash is generated from another, which must exist first.
    lost
      .toSorted((one, other) => Number(one === "hash") - Number(other === "hash"))
      .map((name) => restoreColumn(table, name, parameters))
      .join("; "),
  );
}

/** Only the user knows whether the column was renamed or dropped. */
function restoreColumn(table: TaskTable, name: ColumnName, parameters: FileParameters): string {
  const rename = `if ${name} was renamed: ALTER TABLE ${table.qualified} RENAME COLUMN … TO ${identifier(name)}`;
  const add = restoreStatement(table, name, parameters);
  if (add === null) return `${rename}; if it was dropped, restore the table from a backup: no value suits all its rows`;
  return `${rename}; if it was dropped: ${add}`;
}

/** The index of keys, and functions. Meant for a table that is up to date. */
export async function checkFeatures(client: Client, table: TaskTable): Promise<Finding> {
  const [taken] = await takenUserFunctions(client, table);
  if (taken !== undefined) {
    const { purpose, signature } = taken;
    return warn(
      "features",
      `${purpose} are off: pg-task did not create the function ${signature}, or its owner could replace it by any other`,
      `rename it, and restart pg-task: ALTER ROUTINE ${signature} RENAME TO …`,
    );
  }
  switch (await readKeyProblem(client, table, await hasUsers(client, table))) {
    case null:
      return ok("features", "all on");
    case "partitioned":
      return ok("features", "all on, except keys, which a partitioned table cannot have");
    default:
      return warn(
        "features",
        `off: keys: ${table.qualified} has no valid index ${identifier(table.keyIndex)}`,
        `restart pg-task, which creates it unless several waiting tasks have the same key: ${duplicateKeysQuery(table)}`,
      );
  }
}

export async function checkTriggers(client: Client, table: TaskTable): Promise<Finding> {
  const { qualified, readyInsertTrigger, readyUpdateTrigger, wakeUp } = table;
  const wanted = [readyInsertTrigger, readyUpdateTrigger, wakeUp];
  const { rows } = await client.query<{ name: string; relation: string; state: string | null }>(
    `SELECT w.name, r.relation::regclass::text AS relation, t.tgenabled AS state
     FROM unnest($2::text[]) AS w(name)
     CROSS JOIN (SELECT $1::regclass AS relation
       UNION SELECT p.relid FROM pg_catalog.pg_partition_tree($1::regclass) AS p WHERE p.isleaf) AS r
     JOIN pg_catalog.pg_class AS c ON c.oid = r.relation AND c.relkind IN ('r', 'p')
     LEFT JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = r.relation AND t.tgname = w.name
     WHERE t.tgenabled IS DISTINCT FROM 'O' AND t.tgenabled IS DISTINCT FROM 'A'
       AND NOT (c.relkind = 'p' AND current_setting('server_version_num')::integer < 130000 AND w.name <> $3)`,
    [qualified, wanted, wakeUp],
  );
  if (rows.length === 0) return ok("triggers", "all present and enabled");
  const list = rows.map(
    ({ name, relation, state }) => `${name} on ${relation} ${state === null ? "is missing" : "is disabled"}`,
  );
  const disabled = rows.filter(({ state }) => state !== null);
  const remedies = [
    ...disabled.map(({ relation, name }) => `ALTER TABLE ${relation} ENABLE TRIGGER ${identifier(name)}`),
    ...(disabled.length < rows.length
      ? ["pg-task start creates missing ones when it adopts the table again, see docs/adoption.md"]
      : []),
  ];
  return fail("triggers", `${list.join("; ")}: tasks may start late or not at all`, remedies.join("; "));
}

export async function checkIndexes(client: Client, table: TaskTable): Promise<Finding> {
  const { rows } = await client.query<{
    what: string;
    column: string;
    index: string | null;
    valid: boolean | null;
    partitioned: boolean;
  }>(
    `SELECT w.what, w.column, i.indexrelid::regclass::text AS index, i.indisvalid AS valid,
       (SELECT relkind = 'p' FROM pg_catalog.pg_class WHERE oid = $1::regclass) AS partitioned
     FROM (VALUES ('due tasks', 'hash', 'ready'), ('planned tasks', 'plan', '(NOT ready)'), ('ids', 'id', NULL)) AS w(what, "column", predicate)
     LEFT JOIN LATERAL (
       SELECT i.indexrelid, i.indisvalid FROM pg_catalog.pg_index AS i
       JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
       WHERE i.indrelid = $1::regclass AND CASE WHEN w.predicate IS NULL
         THEN i.indpred IS NULL AND a.attname = 'id' ELSE pg_get_expr(i.indpred, i.indrelid) = w.predicate END
       ORDER BY i.indisvalid DESC LIMIT 1
     ) AS i ON true`,
    [table.qualified],
  );
  const missing = rows.filter(({ index }) => index === null);
  if (missing.length > 0) {
    const statements = missing.map(({ column, partitioned }) => {
      const queue = queueIndexes(table).find((index) => index.column === column);
      const definition = queue?.definition ?? `(${identifier(column)})`;
      // PostgreSQL cannot create an index on a partitioned table with CONCURRENTLY.
      return `CREATE INDEX ${partitioned ? "" : "CONCURRENTLY "}ON ${table.qualified} ${definition}`;
    });
    return warn(
      "indexes",
      `missing for ${missing.map(({ what }) => what).join(", ")}: claims scan the whole table`,
      statements.join("; "),
    );
  }
  const invalid = rows.filter(({ valid }) => valid === false).map(({ index }) => index);
  if (invalid.length > 0) {
    return fail("indexes", `invalid: ${invalid.join(", ")}`, `REINDEX INDEX CONCURRENTLY ${invalid[0]}`);
  }
  return ok("indexes", "all present and valid");
}

export async function checkViews(client: Client, table: TaskTable): Promise<Finding> {
  const names = [table.statsView, table.errorsView, table.groupsView, table.schedulesView];
  const { rows } = await client.query<{ name: string }>(
    `SELECT n.name FROM unnest($2::text[]) AS n(name) WHERE NOT EXISTS (
       SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace
       WHERE s.nspname = $1 AND c.relname = n.name AND c.relkind = 'v' AND obj_description(c.oid, 'pg_class') LIKE 'pg-task view%')`,
    [table.schema, names],
  );
  if (rows.length === 0) return ok("views", names.join(", "));
  const missing = rows.map(({ name }) => name).join(", ");
  return warn("views", `missing: ${missing}`, "another object may have the name: rename that, or do without the view");
}
