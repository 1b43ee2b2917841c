import assert from "node:assert/strict";
import { test } from "node:test";
import { ROOT_CONTEXT, trace } from "@opentelemetry/api";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { Tracing } from "../../../../src/manager/telemetry/tracing.js";
import type { ConnectionTarget } from "../../../../src/shared/postgres/target/target.js";
import { parseTraceContext, loadedTracer, toSpanTime } from "../../../../src/shared/tracing.js";
import { silentLog } from "../../../support/taskTables.js";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const spanId = "b7ad6b7169203331";
const traceparent = `00-${traceId}-${spanId}-01`;

const target: ConnectionTarget = {
  host: "127.0.0.1",
  port: 5432,
  user: "postgres",
  database: "postgres",
  sslmode: "disable",
  connectTimeoutMs: 1000,
};

const contextIn = (data: unknown) => trace.getSpanContext(parseTraceContext(JSON.stringify(data)));

test("traceparent and tracestate of a JSON object become the parent", () => {
  const context = contextIn({ traceparent, tracestate: "vendor=1", order: 7 });
  assert.deepEqual(
    { ...context, traceState: context?.traceState?.serialize() },
    { traceId, spanId, traceFlags: 1, isRemote: true, traceState: "vendor=1" },
  );
  assert.equal(contextIn({ traceparent: `00-${traceId}-${spanId}-00` })?.traceFlags, 0);
});

test("a traceparent of a later version is read like the known one", () => {
  assert.equal(contextIn({ traceparent: `01-${traceId}-${spanId}-01-more` })?.spanId, spanId);
});

test("an invalid trace context gives no parent", () => {
  for (const data of [
    {},
    [],
    "text",
    7,
    null,
    { traceparent: 7 },
    { traceparent: "" },
    { traceparent: `${traceparent}-more` },
    { traceparent: `ff-${traceId}-${spanId}-01` },
    { traceparent: `00-${"0".repeat(32)}-${spanId}-01` },
    { traceparent: `00-${traceId}-${"0".repeat(16)}-01` },
    { traceparent: traceparent.toUpperCase() },
  ]) {
    assert.equal(parseTraceContext(JSON.stringify(data)), ROOT_CONTEXT, JSON.stringify(data));
  }
  for (const data of [null, "", "traceparent", `{"traceparent": "${traceparent}"`]) {
    assert.equal(parseTraceContext(data), ROOT_CONTEXT, String(data));
  }
});

test("span times have microseconds", () => {
  assert.deepEqual(toSpanTime("2026-01-02T03:04:05.678901Z"), [1767323045, 678901000]);
  assert.deepEqual(toSpanTime("2026-01-02T03:04:05Z"), [1767323045, 0]);
});

test("nothing is traced without an SDK", () => {
  assert.equal(loadedTracer(), null);
  assert.equal(
    Tracing.create(taskTable("public", "task"), () => target, silentLog),
    null,
  );
});
