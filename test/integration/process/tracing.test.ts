import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { SpanKind, SpanStatusCode } from "@opentelemetry/api";
import { createDatabase } from "../../support/database.js";
import type { LogLine } from "../../support/logLines.js";
import { startProcess } from "../../support/process.js";
import type { RecordedSpan } from "../../support/recordSpans.js";
import { only, Tasks, type TaskRow } from "../../support/tasks.js";
import { projectPath, projectText } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const spanId = "b7ad6b7169203331";
const data = JSON.stringify({ traceparent: `00-${traceId}-${spanId}-01`, tracestate: "shop=1", order: 7 });

const database = await createDatabase();
let spans: RecordedSpan[] = [];
let rows: Record<"good" | "bad" | "stopped" | "own" | "lost", TaskRow>;
let silent: string;
let warned: LogLine;

const preloaded = (file: string): Record<string, string> => ({
  NODE_OPTIONS: `--import=${pathToFileURL(projectPath("dist/test/support", file)).href}`,
});

before(async () => {
  const file = join(await temporaryFolder(), "spans");
  const config = { url: database.url, "pg_task.sleep": 50 };
  const env = { ...preloaded("recordSpans.js"), SPANS_FILE: file };
  const traced = await startProcess({ config, env, until: "ready" });
  const tasks = await Tasks.create(await database.connect());
  const good = await tasks.run("SELECT 1", { data });
  const bad = await tasks.run("SELECT 1/0", { group: "bad", data: "no JSON, a traceparent neither" });
  const own = await tasks.run("UPDATE task SET data = NULL WHERE id = current_setting('pg_task.id')::bigint", { data });
  const slow = await tasks.add("SELECT pg_sleep(60)");
  await tasks.sleeping(slow);
  await tasks.set(slow, "state = 'STOP'");
  const stopped = await tasks.released(slow);
  const hurt = await tasks.add("SELECT pg_sleep(60)", { data });
  const { pid } = await tasks.sleeping(hurt);
  await tasks.set(hurt, "input = 'SELECT 2'");
  await tasks.value("SELECT pg_terminate_backend($1)", [pid]);
  rows = { good, bad, stopped, own, lost: await tasks.end(hurt) };
  assert.equal(existsSync(file), false, "it sends when it is told to");
  await traced.stop();
  spans = readFileSync(file, "utf8")
    .trimEnd()
    .split("\n")
    .map((line): RecordedSpan => JSON.parse(line));

  const untraced = await startProcess({ config, until: "ready" });
  await tasks.run("SELECT 3", { data });
  await untraced.end();
  silent = untraced.output.stdout;

  const misfit = await startProcess({ config, env: preloaded("oldTracingApi.js") });
  warned = await misfit.line("OpenTelemetry SDK is incompatible, runs are not traced");
  await misfit.line("ready");
  await tasks.run("SELECT 4", { data });
  await misfit.end();
});

const runs = (of: TaskRow): RecordedSpan[] =>
  spans.filter(({ name, attributes }) => name === "run" && attributes["pg_task.id"] === of.id);

const run = (of: TaskRow): RecordedSpan => only(runs(of));

/** Converts an ISO 8601 time with microseconds to nanoseconds since 1970, as text. */
const nanoseconds = (iso: string | null): string =>
  `${Date.parse(`${iso?.slice(0, 19)}Z`)}${iso?.slice(20, 26)}000`.replace(/000(\d{9})$/, "$1");

test("a run span has the task, group, state and times of its row", () => {
  const { name, kind, attributes, status, start, end } = run(rows.good);
  assert.deepEqual(
    { name, kind, attributes, status, start, end },
    {
      name: "run",
      kind: SpanKind.CONSUMER,
      attributes: {
        "db.system.name": "postgresql",
        "server.address": database.target.host,
        "server.port": database.target.port,
        "db.namespace": database.target.database,
        "pg_task.table": "public.task",
        "pg_task.id": rows.good.id,
        "pg_task.group": "group",
        "pg_task.state": "DONE",
      },
      status: { code: SpanStatusCode.UNSET },
      start: nanoseconds(rows.good.start),
      end: nanoseconds(rows.good.stop),
    },
  );
});

test("the trace context in data is the parent, even if the task changes its data", () => {
  for (const row of [rows.good, rows.own]) {
    const { traceId: own, parent, state } = run(row);
    assert.deepEqual({ own, parent, state }, { own: traceId, parent: spanId, state: "shop=1" });
  }
});

test("data without a trace context starts a new trace, and an error is the status", () => {
  const { parent, attributes, status } = run(rows.bad);
  assert.deepEqual([parent, attributes["pg_task.state"], attributes["pg_task.group"]], [null, "FAIL", "bad"]);
  assert.deepEqual(status, { code: SpanStatusCode.ERROR, message: "ERROR:  division by zero" });
});

test("the span of a stopped run has the state STOP", () => {
  const { attributes, status } = run(rows.stopped);
  assert.equal(attributes["pg_task.state"], "STOP");
  const message = "ERROR:  canceling statement due to user request";
  assert.deepEqual(status, { code: SpanStatusCode.ERROR, message });
});

test("the span of a run whose session was lost has no state, and the next run is another span of the same trace", () => {
  const [first, second, ...more] = runs(rows.lost);
  assert.equal(more.length, 0);
  assert.deepEqual(first?.status, { code: SpanStatusCode.ERROR, message: "the session that ran it was lost" });
  assert.equal("pg_task.state" in (first?.attributes ?? {}), false);
  assert.equal(second?.attributes["pg_task.state"], "DONE");
  assert.deepEqual([first?.traceId, second?.traceId], [traceId, traceId]);
});

test("each run is linked to its claim, and finish spans have the number of rows", () => {
  const claims = new Map(spans.flatMap((span) => (span.name === "claim" ? [[span.spanId, span]] : [])));
  const linked = new Map<string, number>();
  for (const { name, links } of spans) {
    if (name !== "run") continue;
    assert.equal(links.length, 1);
    for (const link of links) linked.set(link, (linked.get(link) ?? 0) + 1);
  }
  assert.deepEqual(
    [...claims.values()].map(({ spanId: id, attributes }) => [id, attributes["pg_task.rows"]]),
    [...claims.keys()].map((id) => [id, linked.get(id)]),
  );
  const written = spans
    .filter(({ name }) => name === "finish")
    .map(({ attributes }) => Number(attributes["pg_task.rows"]));
  assert.equal(
    written.reduce((sum, count) => sum + count, 0),
    5,
  );
  for (const { name, parent, kind, start, end } of spans) {
    if (name === "run") continue;
    assert.deepEqual({ parent, kind }, { parent: null, kind: SpanKind.CLIENT });
    assert.ok(BigInt(start) <= BigInt(end));
  }
});

test("no span contains SQL, output or data of a task", () => {
  assert.doesNotMatch(JSON.stringify(spans), /SELECT|pg_sleep|order|no JSON/);
});

test("docs/tracing.md lists all spans and attributes", () => {
  const docs = projectText("docs/tracing.md");
  const documented = [...docs.matchAll(/^\| `(\w+\.[\w.]+)` +\| ([^|]+?) +\|/gm)].map((row) => row.slice(1));
  const emitted = new Map<unknown, Set<string>>();
  for (const { name, attributes } of spans) {
    for (const attribute of Object.keys(attributes)) {
      emitted.set(attribute, (emitted.get(attribute) ?? new Set()).add(name));
    }
  }
  const order = ["claim", "run", "finish"];
  assert.deepEqual(
    documented,
    [...emitted].map(([attribute, names]) => [attribute, order.filter((name) => names.has(name)).join(", ")]),
  );
});

test("nothing is logged about tracing without an SDK", () => {
  assert.match(silent, /"msg":"ready"/);
  assert.doesNotMatch(silent, /traced/);
});

test("an SDK with an incompatible API is logged, and tasks run untraced", () => {
  assert.equal(warned["version"], "1.3.0");
  assert.match(String(warned["advice"]), /npm ls @opentelemetry\/api/);
});
