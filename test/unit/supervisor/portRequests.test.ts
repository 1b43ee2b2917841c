import assert from "node:assert/strict";
import { it } from "node:test";
import { isPortMessage, PortRequests } from "../../../src/supervisor/portRequests.js";
import { isRollCall } from "../../../src/shared/postgres/rollCall.js";

const messages = ["wanted", "freed", "asked", "used"] as const;

/** Creates port requests of processes in these networks, each of which receives what any other one sends. */
function connect(networks: readonly string[]) {
  const sent: string[] = [];
  const all: PortRequests[] = networks.map((network) => {
    const own = new PortRequests((payload) => {
      sent.push(payload);
      for (const each of all) if (each !== own) each.receive(payload);
    }, network);
    return own;
  });
  const received = all.map((each) => {
    const events: [string, number][] = [];
    for (const message of messages) each.on(message, (port) => events.push([message, port]));
    return events;
  });
  return { all, received, sent };
}

it("reaches the processes of the same network, and no others", () => {
  const { all, received } = connect(["a1", "a1", "b2"]);
  all[0]?.tell("wanted", 8765);
  assert.deepEqual(received, [[], [["wanted", 8765]], []]);
  all[1]?.tell("freed", 8765);
  assert.deepEqual(received, [[["freed", 8765]], [["wanted", 8765]], []]);
  all[0]?.tell("asked", 1);
  all[1]?.tell("used", 1);
  assert.deepEqual(
    received.map((events) => events.slice(1)),
    [[["used", 1]], [["asked", 1]], []],
  );
});

it("tells its messages from the others of the channel", () => {
  const { all, received, sent } = connect(["a1", "a1"]);
  for (const message of messages) all[0]?.tell(message, 65535);
  assert.deepEqual(sent.map(isPortMessage), [true, true, true, true]);
  assert.deepEqual(sent.map(isRollCall), [false, false, false, false]);
  const others = ["", "ask", "here", "wanted", "wanted a1 x", "freed a1 1 2"];
  assert.deepEqual(others.filter(isPortMessage), []);
  const before = structuredClone(received);
  for (const payload of others) all[1]?.receive(payload);
  assert.deepEqual(received, before);
});
