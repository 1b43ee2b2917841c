// Passes on the failures that the trigger of docs/recipes.md, "Be told when a job fails", has written to public.failure.
//
//   DATABASE_URL=postgresql://reporter@localhost/shop WEBHOOK=https://chat.example/hook node report-failures.mjs
//
// A failure is deleted only when the webhook has accepted it, so it is reported at least once. If the server or the
// webhook does not answer, the program ends with an error, and the failures stay: let systemd, PM2 or the like start it
// again.
import { Client } from "pg";

const { DATABASE_URL, WEBHOOK } = process.env;
if (DATABASE_URL === undefined || WEBHOOK === undefined) throw new Error("set DATABASE_URL and WEBHOOK");

const client = new Client({ connectionString: DATABASE_URL, keepAlive: true });
await client.connect();

async function report() {
  await client.query("BEGIN");
  const { rows } = await client.query("DELETE FROM public.failure RETURNING *");
  for (const { task, group, state, error } of rows) {
    const text = `task ${task} (${group}) ${state}: ${error ?? "a task that it waited for has failed"}`;
    const response = await fetch(WEBHOOK, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ text }),
      signal: AbortSignal.timeout(30_000),
    });
    if (!response.ok) throw new Error(`the webhook answered ${response.status}`);
  }
  await client.query("COMMIT");
}

// A notification that comes while failures are reported leads to another look.
let reporting = Promise.resolve();
client.on("notification", () => {
  reporting = reporting.then(report);
});
await client.query("LISTEN failed");
reporting = reporting.then(report);
