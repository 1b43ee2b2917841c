import assert from "node:assert/strict";
import { after, it } from "node:test";
import { freePort } from "../../../../src/embedded/port.js";
import { loadConfiguration } from "../../../../src/shared/config/loadConfiguration.js";
import { backendPid, sqlState } from "../../../../src/shared/postgres/client.js";
import { TaskClient } from "../../../../src/library/index.js";
import { cli } from "../../../support/cli.js";
import { connectTo } from "../../../support/connectTo.js";
import { serverMajor } from "../../../support/database.js";
import { doctor, type DoctorLine } from "../../../support/doctor.js";
import { RestartableServer } from "../../../support/restartableServer.js";
import { ensureTaskTable } from "../../../support/taskTables.js";
import { waitForRow, only } from "../../../support/tasks.js";

// The size of the queue can be set since PostgreSQL 17. It takes 8 GB to fill it in older ones.
const skip = (await serverMajor()) < 17;

it(
  "doctor watches the queue of notifications, and the errors of a full one say that this passes",
  { skip },
  async () => {
    const server = await RestartableServer.create(await freePort());
    await server.start({ max_notify_queue_pages: 64 });
    const env = { DATABASE_URL: server.url };
    const { control } = await loadConfiguration({ cwd: "/", env: {}, control: server.url });
    await ensureTaskTable(control);
    const [listener, sender] = [await connectTo(server.url), await connectTo(server.url)];
    after(() => Promise.all([listener.end(), sender.end()]));

    const notifications = async (): Promise<DoctorLine | undefined> =>
      (await doctor(env)).lines.find(({ name }) => name === "notifications");
    /** Sends notifications until the queue is this full. */
    const fill = async (share: number): Promise<void> => {
      for (;;) {
        const { rows: read } = await sender.query<{ usage: number }>("SELECT pg_notification_queue_usage() AS usage");
        if ((read[0]?.usage ?? 0) >= share) return;
        await sender.query("SELECT pg_notify('filling', repeat('x', 7000))");
      }
    };

    const { rows } = await sender.query<{ id: string }>("INSERT INTO task (input) VALUES ('SELECT 1') RETURNING id");
    const waiting = only(rows).id;

    await listener.query("LISTEN anything");
    await listener.query("BEGIN");
    const pid = backendPid(listener);
    assert.equal((await notifications())?.level, "ok");
    await fill(0.6);
    const half = await notifications();
    assert.equal(half?.level, "warn");
    assert.match(half.text, new RegExp(`queue of notifications is 6\\d % full: .*, probably server process ${pid} `));
    assert.ok(half.remedy.endsWith(`SELECT pg_terminate_backend(${pid})`), half.remedy);
    await assert.rejects(fill(2), (error) => sqlState(error) === "54000");
    assert.equal((await notifications())?.level, "fail");

    const passes =
      /too many notifications in the NOTIFY queue(?: \(SQLSTATE 54000\))?: pg-task doctor names the session .*; this passes when/;
    const refused = await cli(["add", "SELECT 1"], { env });
    assert.notEqual(refused.code, 0);
    assert.match(refused.stderr, passes);
    const stopped = await cli(["stop", waiting], { env });
    assert.notEqual(stopped.code, 0);
    assert.match(stopped.stdout + stopped.stderr, passes);
    const tasks = new TaskClient(server.url);
    await assert.rejects(tasks.add("SELECT 1"), passes);
    await tasks.end();

    await sender.query(half.remedy.replace(/^.*(?=SELECT)/, ""));
    await waitForRow(sender, "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", [pid]);
    // The server empties a full queue only when it is asked how full it is.
    assert.notEqual((await cli(["add", "SELECT 1"], { env })).code, 0);
    assert.equal((await notifications())?.level, "ok");
    const added = await cli(["add", "SELECT 1"], { env });
    assert.deepEqual([added.code, added.stderr], [0, ""]);
  },
);
