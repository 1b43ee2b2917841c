import { Client } from "pg";
import { handling, tell } from "./handling.js";
import type { Payload } from "./protocol.js";

/*
 * The least that a queue does if it claims and completes each task by statements of its own, in one thread. It has
 * neither groups nor retries, nor does it recover the tasks of a process that has died.
 */
const { given, pool, handle } = handling({
  wake: () => {},
  add: () => {
    throw new Error("expected to be measured with tasks that others add");
  },
});
const client = new Client({ connectionString: given.url });
await client.connect();
await client.query(`
  CREATE SCHEMA IF NOT EXISTS bare;
  CREATE TABLE IF NOT EXISTS bare.job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload json NOT NULL, state text NOT NULL DEFAULT 'waits');
  CREATE INDEX IF NOT EXISTS waiting ON bare.job (id) WHERE state = 'waits';
  CREATE OR REPLACE FUNCTION bare.wake() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NOTIFY bare; RETURN NULL; END $$;
  CREATE OR REPLACE TRIGGER wake AFTER INSERT ON bare.job FOR EACH STATEMENT EXECUTE FUNCTION bare.wake();
  LISTEN bare`);

const maxClaimed = 8;
const claim = {
  name: "claim",
  text: `UPDATE bare.job SET state = 'runs' WHERE id IN (
      SELECT id FROM bare.job WHERE state = 'waits' ORDER BY id LIMIT ${maxClaimed} FOR UPDATE SKIP LOCKED
    ) RETURNING id, payload`,
};
let isLooking = false;
let lookAgain = false;

async function look(): Promise<void> {
  lookAgain = true;
  if (isLooking) return;
  isLooking = true;
  while (lookAgain) {
    lookAgain = false;
    const { rows } = await client.query<{ id: string; payload: Payload }>(claim);
    lookAgain ||= rows.length === maxClaimed;
    for (const { id, payload } of rows) void run(id, payload);
  }
  isLooking = false;
}

async function run(id: string, payload: Payload): Promise<void> {
  await handle(payload);
  await pool.query({ name: "complete", text: "UPDATE bare.job SET state = 'done' WHERE id = $1", values: [id] });
}

client.on("notification", () => void look());
process.once("SIGTERM", () => process.exit());
await look();
tell({ type: "ready" });
