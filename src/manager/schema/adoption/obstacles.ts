import type { Client } from "../../../shared/postgres/client.js";
import { PgTaskError } from "../../../shared/errors.js";
import { identifier } from "../../../shared/postgres/quoting.js";
import type { TaskTable } from "../taskTable.js";
import { expectedColumns, indispensable, isOurHash } from "./expectedColumns.js";
import { forbiddenStates } from "./stateChecks.js";
import { kindOf } from "./relationKinds.js";
import { legacyLayoutStatements, isLegacyLayout } from "./legacyLayout.js";
import type { FoundColumn, Layout } from "./layout.js";

/** What keeps a table from being adopted, and what its owner may run against it. */
interface Obstacle {
  readonly problem: string;
  readonly statement: string;
}

/** @throws PgTaskError SCHEMA_INCOMPATIBLE with the statements that make the table fit. */
export async function refuseObstacles(
  client: Client,
  table: TaskTable,
  layout: Layout,
): Promise<void> {
  const { qualified } = table;
  const foreign = `${qualified} exists and was not made by pg-task`;
  if (layout.kind !== "r" && layout.kind !== "p") {
    throw new PgTaskError(
      "SCHEMA_INCOMPATIBLE",
      `${foreign}; expected a table, got ${kindOf(layout.kind)}: give another "schema" or "table"`,
    );
  }
  if (isLegacyLayout(layout)) {
    throw refusal(
      `${qualified} has the layout of pg_task's first version`,
      legacyLayoutStatements(qualified),
    );
  }
  const obstacles = [
    ...lacking(table, layout),
    ...misfits(table, layout),
    ...extensionsTriggers(table, layout),
    ...(await taken(client, table, layout)),
    ...(await checks(client, table, layout)),
  ];
  if (obstacles.length === 0) return;
  throw refusal(
    `${foreign}: ${obstacles.map(({ problem }) => problem).join("; ")}`,
    obstacles.map(({ statement }) => statement),
  );
}

function refusal(what: string, statements: readonly string[]): PgTaskError {
  return new PgTaskError(
    "SCHEMA_INCOMPATIBLE",
    `${what}: give another "schema" or "table", or make it fit:\n${statements.map((each) => `${each};`).join("\n")}`,
  );
}

function lacking({ qualified }: TaskTable, { columns }: Layout): Obstacle[] {
  const types: Readonly<Record<string, string>> = {
    id: "bigserial PRIMARY KEY",
    plan: "timestamptz NOT NULL DEFAULT statement_timestamp()",
    state: "text NOT NULL DEFAULT 'PLAN'",
    input: "text NOT NULL DEFAULT ''",
  };
  return indispensable
    .filter((name) => !columns.has(name))
    .map((name) => ({
      problem: `it has no column ${name}`,
      statement: `ALTER TABLE ${qualified} ADD COLUMN ${name} ${types[name]}`,
    }));
}

function misfits({ qualified }: TaskTable, { columns }: Layout): Obstacle[] {
  return expectedColumns.flatMap(({ name, type, fits }) => {
    const found = columns.get(name);
    if (found === undefined || (fits(found) && (name !== "hash" || hashFits(found)))) return [];
    const quoted = identifier(name);
    const problem = `its column ${name} is ${found.type}${found.generated === null ? "" : ` generated from ${found.generated}`}, not ${type}`;
    const statement =
      name === "hash" || name === "ready"
        ? renamed(qualified, name)
        : `ALTER TABLE ${qualified} ALTER COLUMN ${quoted} TYPE ${type} USING ${quoted}::text::${type}`;
    return [{ problem, statement }];
  });
}

const hashFits = ({ generated }: FoundColumn): boolean =>
  generated === null || isOurHash(generated);

const renamed = (qualified: string, column: string): string =>
  `ALTER TABLE ${qualified} RENAME COLUMN ${column} TO ${column}_before`;

/**
 * Where the table has a column user, the extension runs each task as the role that inserted it, and lets
 * no state change as pg-task changes it (so its README). To run them all as one user instead is for the table's owner to say.
 */
function extensionsTriggers({ qualified, table }: TaskTable, layout: Layout): Obstacle[] {
  if (layout.columns.get("user")?.base !== "name") return [];
  return [
    [
      `${table}_user`,
      `it has each task run as the role in its column user, which pg-task does not`,
    ],
    [`${table}_state`, `it forbids the step from PLAN to WORK`],
  ].flatMap(([name = "", problem = ""]) =>
    layout.triggers.includes(name)
      ? [
          {
            problem,
            statement: `ALTER TABLE ${qualified} DISABLE TRIGGER ${identifier(name)}`,
          },
        ]
      : [],
  );
}

/** Columns of the user's own that have the names of those in which pg-task keeps its books. */
async function taken(client: Client, table: TaskTable, layout: Layout): Promise<Obstacle[]> {
  const obstacles: Obstacle[] = [];
  for (const name of ["ready", "owner"]) {
    const found = layout.columns.get(name);
    if (found === undefined || found.comment?.startsWith("For pg-task's own use") === true)
      continue;
    const { rowCount } = await client.query(
      `SELECT FROM ${table.qualified} WHERE ${name} IS NOT NULL LIMIT 1`,
    );
    if (rowCount === 0) continue;
    obstacles.push({
      problem: `its column ${name} holds something else than pg-task's`,
      statement: renamed(table.qualified, name),
    });
  }
  return obstacles;
}

/** Checks of the user's own with which tasks could not go on, or not be ended. */
async function checks(client: Client, table: TaskTable, layout: Layout): Promise<Obstacle[]> {
  const found = await forbiddenStates(client, table, layout);
  return found.map(({ check, domain, states, statement }) => ({
    problem: `${domain === null ? "its" : `its column state is of the domain ${domain}, whose`} constraint ${check} forbids the state${states.length === 1 ? "" : "s"} ${states.join(", ")}`,
    statement,
  }));
}
