import type { QueryResult, QueryResultRow } from "pg";
import type { Queryable } from "../shared/postgres/client.js";

interface Waiting {
  readonly text: string;
  readonly values: readonly unknown[];
  readonly resolve: (rows: never[]) => void;
  readonly reject: (error: unknown) => void;
}

const batches = new WeakSet<Queryable>();

/**
 * Lets several readers ask at the same time: the statements that wait are joined into one, which takes one round trip.
 * A statement that was asked before is not sent again, so all readers see the same answer. A batch is for one request
 * only, and for statements that change nothing, with columns of types that JSON has.
 */
export function batched(client: Queryable): Queryable {
  if (batches.has(client)) return client;
  const answers = new Map<string, Promise<never[]>>();
  let waiting: Waiting[] = [];
  const send = async (): Promise<void> => {
    const sent = waiting;
    waiting = [];
    try {
      const { text, values } = join(sent);
      const { rows } = await client.query<Record<string, string>>(text, values);
      for (const [place, { resolve }] of sent.entries()) resolve(JSON.parse(rows[0]?.[place] ?? "[]"));
    } catch (error) {
      for (const { reject } of sent) reject(error);
    }
  };
  const ask = (text: string, values: readonly unknown[]): Promise<never[]> =>
    new Promise((resolve, reject) => {
      // By then, every reader that can go on with the answers so far has asked its next question.
      if (waiting.length === 0) setImmediate(() => void send());
      waiting.push({ text, values, resolve, reject });
    });
  const batch: Queryable = {
    query: async <Row extends QueryResultRow>(
      text: string,
      values: unknown[] = [],
    ): Promise<Pick<QueryResult<Row>, "rows" | "rowCount">> => {
      const key = JSON.stringify([text, values]);
      const answer = answers.get(key) ?? ask(text, values);
      answers.set(key, answer);
      const rows: Row[] = await answer;
      return { rows, rowCount: rows.length };
    },
  };
  batches.add(batch);
  return batch;
}

/** A parameter, or a text in which one must not be looked for. */
const parameterOrText = /'[^']*'|\$(\d+)/g;

/** Returns one statement whose only row has, for each of these statements, its rows as JSON. */
function join(statements: readonly Waiting[]): { readonly text: string; readonly values: unknown[] } {
  const all: unknown[] = [];
  const parts = statements.map(({ text, values }, place) => {
    const before = all.length;
    all.push(...values);
    const numbered = text.replaceAll(parameterOrText, (found, number?: string) =>
      number === undefined ? found : `$${before + Number(number)}`,
    );
    return `(SELECT coalesce(pg_catalog.json_agg(q), '[]') FROM (\n${numbered}\n) AS q)::pg_catalog.text AS "${place}"`;
  });
  return { text: `SELECT ${parts.join(",\n")}`, values: all };
}
