import type { Client } from "../../src/shared/postgres/client.js";
import type { NetworkedServer } from "./networkedServer.js";
import { withConnectionTo } from "../support/connectTo.js";

/** Whether there are also tasks that run on a second server. */
export const hasRemote = process.env["CHAOS_REMOTE"] === "1";

/** Creates the table for effects on the second server, and lets the tasks of the first one find it. */
export async function prepareRemote(client: Client, { url, network }: NetworkedServer): Promise<void> {
  await withConnectionTo(url, async (second) => {
    await second.query(
      `CREATE TABLE effect (task bigint NOT NULL, start timestamptz NOT NULL DEFAULT now(),
         stop timestamptz NOT NULL DEFAULT clock_timestamp(), role name DEFAULT current_user);
       -- Makes commits take some time, so that they are often interrupted.
       CREATE FUNCTION commit_slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(random() * 0.05); RETURN NULL; END $$;
       CREATE CONSTRAINT TRIGGER commit_slowly AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION commit_slowly()`,
    );
  });
  await client.query(
    `CREATE TABLE second_server AS SELECT 'host=127.0.0.1 port=${network.port} user=postgres dbname=postgres sslmode=disable' AS remote`,
  );
}

/**
 * Adds the effects on the second server to those on the first one.
 *
 * @returns how many there are, and how many runs have been fenced without an effect within the last minute or so
 */
export async function collectEffects(client: Client, { url }: NetworkedServer): Promise<string> {
  const { rows } = await withConnectionTo(url, (second) =>
    second.query<{ effects: string; fenced: number }>(
      `SELECT coalesce(json_agg(e), '[]')::text AS effects,
         (SELECT count(*)::integer FROM pg_task_ledger_postgres WHERE NOT done) AS fenced FROM effect AS e`,
    ),
  );
  const [{ effects, fenced } = { effects: "[]", fenced: 0 }] = rows;
  const { rowCount } = await client.query(
    "INSERT INTO effect SELECT * FROM json_populate_recordset(NULL::effect, $1)",
    [effects],
  );
  return `${rowCount} effects on the second server, ${fenced} runs fenced`;
}
