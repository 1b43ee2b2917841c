import { Client, type QueryResultRow } from "pg";

/** A database for one run, on the server shared by all runs. */
export interface Database {
  readonly name: string;
  readonly url: string;
  /** The benchmark's own connection to the database. */
  readonly client: Client;
  /** Ends the connection and drops the database. */
  drop(): Promise<void>;
}

/** Creates databases with unique names. */
export class Databases {
  readonly #serverUrl: string;
  #made = 0;

  constructor(serverUrl: string) {
    this.#serverUrl = serverUrl;
  }

  async make(): Promise<Database> {
    this.#made += 1;
    const name = `bench_${this.#made}`;
    await this.#onServer(`CREATE DATABASE ${name}`);
    // The dirty pages of the previous run are written now, so that they are not written during this run.
    await this.#onServer("CHECKPOINT");
    const url = new URL(this.#serverUrl);
    url.pathname = `/${name}`;
    const client = await connect(url.href);
    return {
      name,
      url: url.href,
      client,
      drop: async () => {
        await client.end();
        await this.#onServer(`DROP DATABASE ${name} WITH (FORCE)`);
      },
    };
  }

  async #onServer(statement: string): Promise<void> {
    const client = await connect(this.#serverUrl);
    try {
      await client.query(statement);
    } finally {
      await client.end();
    }
  }
}

export async function connect(url: string): Promise<Client> {
  const client = new Client({ connectionString: url, application_name: "bench" });
  // The event needs no handling: when the connection is lost, its queries fail as well.
  client.on("error", () => {});
  await client.connect();
  return client;
}

/**
 * Returns the first row of a statement's result.
 *
 * @throws Error if the statement returns no row
 */
export async function one<Row extends QueryResultRow>(
  client: Client,
  statement: string,
  values: readonly unknown[] = [],
): Promise<Row> {
  const { rows } = await client.query<Row>(statement, [...values]);
  const [row] = rows;
  if (row === undefined) throw new Error(`expected a row of ${statement}, got none`);
  return row;
}
