import { Client, DatabaseError, type QueryConfig } from "pg";

interface Answer {
  readonly rows: readonly object[];
  readonly rowCount: number;
}

/** Creates a client that never connects. `answer` answers its queries, of which some have a name. */
export function stubClient(
  answer: (text: string, values: readonly unknown[], name: string) => Promise<Answer>,
): Client {
  return Object.assign(new Client(), {
    query: (asked: string | QueryConfig, values: readonly unknown[] = []) =>
      typeof asked === "string"
        ? answer(asked, values, "")
        : answer(asked.text, asked.values ?? values, asked.name ?? ""),
  });
}

/** @param where its context, such as a trigger */
export function serverError(code: string, where?: string): DatabaseError {
  return Object.assign(new DatabaseError("said the server", 0, "error"), { code, where });
}
