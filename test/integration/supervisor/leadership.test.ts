import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { after, it, mock } from "node:test";
import { createLog } from "../../../src/shared/log.js";
import { Leadership } from "../../../src/supervisor/leadership.js";
import { createDatabase } from "../../support/database.js";

const database = await createDatabase("empty");
const log = createLog({ level: "silent", name: "test", write: () => {} });

function seek(
  name: string,
  port = database.target.port,
): {
  readonly leadership: Leadership;
  readonly leads: Promise<unknown>;
  readonly standsBy: Promise<unknown>;
} {
  const leadership = new Leadership({
    target: { ...database.target, port },
    name,
    log,
    rests: () => false,
  });
  const leads = new Promise<void>((resolve) => leadership.once("leader", resolve));
  const standsBy = new Promise<void>((resolve) => leadership.once("standby", resolve));
  leadership.start();
  return { leadership, leads, standsBy };
}

it("hands over to a standby that need not look for itself", async () => {
  const first = seek("spoken");
  await first.leads;
  const client = await database.connect();
  // Whatever goes by time stands still from here on.
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const second = seek("spoken");
    await second.standsBy;
    await first.leadership.stop();
    await second.leads;
    await second.leadership.stop();
  } finally {
    mock.timers.reset();
  }
  const { rows } = await client.query(
    // Those of other databases are other tests'.
    `SELECT FROM pg_locks WHERE locktype = 'advisory'
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
  );
  assert.deepEqual(rows, []);
});

it("hands over one after the other, whoever stops when", async () => {
  const all = Array.from({ length: 5 }, () => seek("many"));
  const left = new Set(all);
  let leading = 0;
  while (left.size > 0) {
    const leader = await Promise.race([...left].map((each) => each.leads.then(() => each)));
    leading += 1;
    left.delete(leader);
    await leader.leadership.stop();
  }
  assert.equal(leading, all.length);
});

it("leads again by itself after its connection was ended", async () => {
  const { leadership, leads } = seek("again");
  await leads;
  const again = new Promise<void>((resolve) => leadership.once("leader", resolve));
  const client = await database.connect();
  await client.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pg_conf' AND datname = current_database()",
  );
  await again;
  await leadership.stop();
});

it("leads beside a cluster of another name", async () => {
  const one = seek("one");
  const other = seek("other");
  await Promise.all([one.leads, other.leads]);
  await Promise.all([one.leadership.stop(), other.leadership.stop()]);
});

/** A way to the server on which nothing comes through any more once it is cut, and nobody is told. */
async function startCable(): Promise<{ readonly port: number; readonly cut: () => void }> {
  const sockets: Socket[] = [];
  let whole = true;
  const server = createServer((socket) => {
    const onward = connect(database.target.port, database.target.host);
    for (const [from, to] of [
      [socket, onward],
      [onward, socket],
    ] as const) {
      sockets.push(from);
      from.on("error", () => {});
      from.on("data", (data) => (whole || !early.has(socket)) && to.write(data));
      from.on("end", () => (whole || !early.has(socket)) && to.end());
    }
    if (whole) early.add(socket);
  });
  const early = new Set<Socket>();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return { port, cut: () => (whole = false) };
}

it("gives up a connection on which nothing is answered any more, and leads again on another", async () => {
  const cable = await startCable();
  const { leadership, leads } = seek("cut", cable.port);
  await leads;
  const again = new Promise<void>((resolve) => leadership.once("leader", resolve));
  cable.cut();
  await again;
  await leadership.stop();
});
