import assert from "node:assert/strict";
import { once } from "node:events";
import { it, type TestContext } from "node:test";
import type { ClusterRole } from "../../../src/shared/clusterStatus.js";
import { PortRequests } from "../../../src/supervisor/portRequests.js";
import { occupyPort } from "../../support/web.js";
import { launchWebServer, startWebServer } from "../../support/webServer.js";

/** Returns the port requests of two processes, which receive each other's messages. */
function pair(networks: readonly [string, string] = ["a1", "a1"]): [PortRequests, PortRequests] {
  const one: PortRequests = new PortRequests((payload) => other.receive(payload), networks[0]);
  const other = new PortRequests((payload) => one.receive(payload), networks[1]);
  return [one, other];
}

const health = async (url: string): Promise<string> => {
  // Another server listens on the same port later, so no connection is kept.
  const response = await fetch(`${url}health`, { headers: { Connection: "close" } });
  const { role }: { readonly role: string } = await response.json();
  return role;
};

async function startOn(context: TestContext, role: ClusterRole, ports: PortRequests) {
  const { server, port } = await occupyPort();
  server.close();
  await once(server, "close");
  return { ...(await startWebServer(context, { role, port, ports })), port };
}

for (const role of ["standby", "stopping", "seeking"] as const) {
  it(`gives the port of a process whose role is ${role} to the leader`, async (context) => {
    const [standbys, leaders] = pair();
    const { url, port, logged } = await startOn(context, role, standbys);
    assert.equal(await health(url), role);
    const left = once(logged, "HTTP port left to the leader");
    const unexpected = once(logged, "HTTP address unavailable, retrying").then(() => assert.fail("it was logged"));
    const leader = await launchWebServer(context, { role: "leader", port, ports: leaders });
    assert.deepEqual(await left, [{ port }]);
    assert.equal(await leader.page, url);
    assert.equal(await health(url), "leader");
    // When the leader's process has ended, the other one takes the port.
    const page = once(logged, "page");
    await leader.server.end();
    await Promise.race([page, unexpected]);
    assert.equal(await health(url), role);
  });
}

it("lets a process that becomes the leader ask at once", async (context) => {
  const [standbys, leaders] = pair();
  const { url, port } = await startOn(context, "standby", standbys);
  const later = await launchWebServer(context, { role: "standby", port, ports: leaders });
  await once(later.logged, "HTTP address used by another process of the cluster, waiting");
  // From here on, no timer fires.
  context.mock.timers.enable({ apis: ["setTimeout"] });
  Object.assign(later.cluster, { role: "leader" });
  later.cluster.emit("changed");
  assert.equal(await later.page, url);
  context.mock.timers.reset();
  assert.equal(await health(url), "leader");
});

it("warns of a port in use only if no process of the cluster on this machine says that it uses it", async (context) => {
  const shared = "HTTP address used by another process of the cluster, waiting";
  const unavailable = "HTTP address unavailable, retrying";
  const [leaders, standbys] = pair();
  const { port } = await startOn(context, "leader", leaders);
  const standby = await launchWebServer(context, { role: "standby", port, ports: standbys });
  const warned = once(standby.logged, unavailable).then(() => assert.fail("it was warned of"));
  const [info] = await Promise.race([once(standby.logged, shared), warned]);
  assert.deepEqual(info, { listen: `127.0.0.1:${port}`, port });
  // The process that uses the port is in another network, or not of the cluster.
  const [others, far] = pair(["a1", "b2"]);
  const stranger = await startOn(context, "leader", others);
  const alone = await launchWebServer(context, { role: "standby", port: stranger.port, ports: far });
  const taken = once(alone.logged, shared).then(() => assert.fail("it was taken for the cluster's"));
  await Promise.race([once(alone.logged, unavailable), taken]);
  // A process that does not reach the others says so in the end.
  const seeking = await launchWebServer(context, { role: "seeking", port: stranger.port });
  await once(seeking.logged, unavailable);
});

it("leaves a leader's port, and the ports of other processes and networks, alone", async (context) => {
  const [one, other] = pair();
  const leader = await startOn(context, "leader", one);
  other.tell("wanted", leader.port);
  const [two, foreign] = pair(["a1", "b2"]);
  const standby = await startOn(context, "standby", two);
  foreign.tell("wanted", standby.port);
  const [near, same] = pair();
  const third = await startOn(context, "standby", near);
  same.tell("wanted", leader.port);
  // A server that frees its port is closed before a request can reach it.
  assert.deepEqual(await Promise.all([leader, standby, third].map(({ url }) => health(url))), [
    "leader",
    "standby",
    "standby",
  ]);
});

it("asks again until the port is free, if another program uses it", async (context) => {
  const [ports, others] = pair();
  const { server, port } = await occupyPort();
  let asked = 0;
  const twice = new Promise<void>((resolve) => {
    others.on("wanted", () => {
      asked += 1;
      if (asked === 2) resolve();
    });
  });
  const leader = await launchWebServer(context, { role: "leader", port, ports });
  await twice;
  server.close();
  await once(server, "close");
  others.tell("freed", port);
  assert.equal(await health(await leader.page), "leader");
});
