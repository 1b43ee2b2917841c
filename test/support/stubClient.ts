import { Client, type QueryConfig } from "pg";

interface Answer {
  readonly rows: readonly object[];
  readonly rowCount: number;
}

/** Creates a client that never connects. `answer` answers its queries. */
export function stubClient(answer: (text: string, values: readonly unknown[]) => Promise<Answer>): Client {
  return Object.assign(new Client(), {
    query: (asked: string | QueryConfig, values: readonly unknown[] = []) =>
      typeof asked === "string" ? answer(asked, values) : answer(asked.text, asked.values ?? values),
  });
}
