import assert from "node:assert/strict";
import { connectClient } from "../../../../src/shared/postgres/client.js";
import { ProtocolConnection } from "../../../../src/shared/postgres/protocol/connection.js";
import type { ServerMessage } from "../../../../src/shared/postgres/protocol/decode.js";
import { encodeCommand } from "../../../../src/shared/postgres/protocol/encode.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";

const database = await createDatabase("empty");

async function openWire(): Promise<ProtocolConnection> {
  const { stream } = (await connectClient(database.target, { applicationName: "wire" })).connection;
  stream.removeAllListeners("data");
  return new ProtocolConnection({ pid: 0, stream }, () => 1 << 20);
}

/** Sends a statement with parameters. Resolves with the types of the messages of its answer. */
async function answerOf(wire: ProtocolConnection, text: string, values: readonly (string | null)[]): Promise<string[]> {
  return await new Promise((resolve) => {
    const types: string[] = [];
    const receive = ({ type }: ServerMessage): void => {
      types.push(type);
      if (type === "ready" || type === "skipped") resolve(types);
    };
    wire.sendStatement(text, receive, { values, types: [] });
  });
}

const next = async (wire: ProtocolConnection): Promise<unknown> => (await wire.query("SELECT 'next'")).rows;

test("the answer to a statement with parameters is that to a query, also after an error", async () => {
  const wire = await openWire();
  const [answer, refused, unbound, behind] = await Promise.all([
    answerOf(wire, "SELECT $1::integer, $2::text", ["1", null]),
    answerOf(wire, "SELECT $1::integer", ["x"]),
    answerOf(wire, "SELECT $1, $2", ["x"]),
    next(wire),
  ]);
  assert.deepEqual(answer, ["rowDescription", "dataRow", "commandComplete", "ready"]);
  assert.deepEqual([refused.at(-2), refused.at(-1)], ["error", "ready"]);
  assert.deepEqual([unbound.at(-2), unbound.at(-1)], ["error", "ready"]);
  assert.deepEqual(behind, [["next"]]);
  await wire.close();
});

test("a statement with parameters is skipped behind a failed guard, and what follows it runs", async () => {
  const wire = await openWire();
  const guard: string[] = [];
  wire.guard({ bytes: encodeCommand("SELECT 1 / 0"), commands: 1 }, ({ type }) => guard.push(type));
  const [answer, behind] = await Promise.all([answerOf(wire, "SELECT $1::integer", ["1"]), next(wire)]);
  assert.deepEqual(guard, ["error", "skipped"]);
  assert.deepEqual(answer, ["skipped"]);
  assert.deepEqual(behind, [["next"]]);
  await wire.close();
});

test("a statement that fails when its transaction ends has no tag", async () => {
  const wire = await openWire();
  await wire.query(
    "CREATE TABLE public.once (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO public.once VALUES (1)",
  );
  assert.deepEqual(await answerOf(wire, "INSERT INTO public.once VALUES ($1)", ["1"]), ["error", "ready"]);
  assert.deepEqual(await answerOf(wire, "INSERT INTO public.once VALUES ($1)", ["2"]), ["commandComplete", "ready"]);
  assert.deepEqual(await next(wire), [["next"]]);
  await wire.close();
});
