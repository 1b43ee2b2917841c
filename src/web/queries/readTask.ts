import type { Client } from "../../shared/database.js";
import { parseConnectionString } from "../../shared/connectionString/parse.js";
import { ConnectionStringProblem } from "../../shared/connectionString/problem.js";
import type { TaskTable } from "../../manager/table.js";
import type { BriefTask, Task } from "../schemas.js";
import { briefColumns, isoTime } from "./columns.js";

/** Most characters of each long text. */
const mostText = 256 * 1024;

type Text = "input" | "output" | "error" | "data";

interface Row {
  readonly brief: Omit<BriefTask, Text | "remote">;
  readonly more: Omit<Task, keyof BriefTask | Text | "remote">;
  readonly input: string;
  readonly inputBytes: number;
  readonly output: string | null;
  readonly outputBytes: number | null;
  readonly error: string | null;
  readonly errorBytes: number | null;
  readonly data: string | null;
  readonly dataBytes: number | null;
  readonly remote: string | null;
}

const intervals = ["active", "live", "repeat", "timeout", "keep"];
const numbers = ["count", "max", "crash"];
const flags = ["atomic", "delete", "drift", "save"];

const cast = (type: string) => (name: string) => `${name}::${type} AS ${name}`;

/** One task with its texts; null when there is none of that id. */
export async function readTask(client: Client, table: TaskTable, id: string): Promise<Task | null> {
  const texts = ["input", "output", "error", "data"].map(
    (name) =>
      `substr(${name}::text, 1, ${mostText}) AS ${name}, octet_length(${name}::text) AS "${name}Bytes"`,
  );
  const more = [
    isoTime("take"),
    ...intervals.map(cast("text")),
    ...numbers.map(cast("int")),
    ...flags.map(cast("boolean")),
  ];
  const { rows } = await client.query<Row>(
    `SELECT ${texts.join(", ")}, remote::text AS remote,
       to_jsonb((SELECT b FROM (SELECT ${briefColumns}) AS b)) AS brief,
       to_jsonb((SELECT m FROM (SELECT ${more.join(", ")}) AS m)) AS more
     FROM ${table.qualified} WHERE id = $1::bigint`,
    [id],
  );
  const [row] = rows;
  return row === undefined ? null : asTask(row);
}

function asTask(row: Row): Task {
  return {
    ...row.brief,
    ...row.more,
    input: { text: row.input, bytes: row.inputBytes },
    output: longText(row.output, row.outputBytes),
    error: longText(row.error, row.errorBytes),
    data: longText(row.data, row.dataBytes),
    remote: row.remote === null ? null : withoutSecrets(row.remote),
  };
}

const longText = (text: string | null, bytes: number | null): Task["output"] =>
  text === null ? null : { text, bytes: bytes ?? 0 };

const shown = ["host", "hostaddr", "port", "dbname", "user", "application_name"] as const;

/** Where a connection string leads; only what can be no secret. */
function withoutSecrets(remote: string): string {
  try {
    const words = parseConnectionString(remote);
    return shown
      .flatMap((name) => {
        const value = words.get(name);
        return value === undefined ? [] : [`${name}=${value}`];
      })
      .join(" ");
  } catch (error) {
    if (error instanceof ConnectionStringProblem) return "(not a connection string)";
    throw error;
  }
}
