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
    isIdle: () => false,
    entryHashes: () => new Set([1]),
    frozenMs: () => 0,
  });
  const leads = new Promise<void>((resolve) => leadership.once("leader", resolve));
  const standsBy = new Promise<void>((resolve) => leadership.once("standby", resolve));
  leadership.start();
  return { leadership, leads, standsBy };
}

it("hands over to a standby at once, without polling", async () => {
  const first = seek("notified");
  await first.leads;
  const client = await database.connect();
  // From here on, no timer fires.
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const second = seek("notified");
    await second.standsBy;
    await first.leadership.stop();
    await second.leads;
    await second.leadership.stop();
  } finally {
    mock.timers.reset();
  }
  const { rows } = await client.query(
    // Locks in other databases belong to other tests.
    `SELECT FROM pg_locks WHERE locktype = 'advisory'
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
  );
  assert.deepEqual(rows, []);
});

it("hands over from one to the next as each leader stops", async () => {
  const all = Array.from({ length: 5 }, () => seek("many"));
  const remaining = new Set(all);
  let leading = 0;
  while (remaining.size > 0) {
    const leader = await Promise.race([...remaining].map((each) => each.leads.then(() => each)));
    leading += 1;
    remaining.delete(leader);
    await leader.leadership.stop();
  }
  assert.equal(leading, all.length);
});

it("regains leadership after its connection was terminated", async () => {
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

it("leads alongside a cluster with another name", async () => {
  const one = seek("one");
  const other = seek("other");
  await Promise.all([one.leads, other.leads]);
  await Promise.all([one.leadership.stop(), other.leadership.stop()]);
});

/** Starts a proxy. `cut` makes its connections half-open; connections that are opened later work. */
async function startProxy(): Promise<{ readonly port: number; readonly cut: () => void }> {
  const sockets: Socket[] = [];
  let isCut = false;
  const server = createServer((socket) => {
    const upstream = connect(database.target.port, database.target.host);
    for (const [from, to] of [
      [socket, upstream],
      [upstream, socket],
    ] as const) {
      sockets.push(from);
      from.on("error", () => {});
      from.on("data", (data) => (!isCut || !early.has(socket)) && to.write(data));
      from.on("end", () => (!isCut || !early.has(socket)) && to.end());
    }
    if (!isCut) early.add(socket);
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
  return { port, cut: () => (isCut = true) };
}

it("replaces a half-open connection and regains leadership", async () => {
  const proxy = await startProxy();
  const { leadership, leads } = seek("cut", proxy.port);
  await leads;
  const again = new Promise<void>((resolve) => leadership.once("leader", resolve));
  proxy.cut();
  await again;
  await leadership.stop();
});
