import { createConfig, lintFromString } from "@redocly/openapi-core";
import { Validator } from "@seriousme/openapi-schema-validator";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { it } from "node:test";
import { z } from "zod";
import { startWeb } from "../../../support/startWeb.js";
import { insertTask, waitForState } from "../../../support/tasks.js";
import { token } from "../../../support/web.js";
import { dependencyGraphSchema, taskDetailSchema, taskListSchema } from "../../../../src/web/api/taskSchemas.js";
import { projectPath } from "../../../support/project.js";

interface Operation {
  readonly parameters: readonly { readonly name: string; readonly in: "path" | "query" }[];
  readonly responses: Readonly<
    Record<string, { readonly content: Readonly<Record<string, { readonly schema: object }>> }>
  >;
}

interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, object>> };
}

const { client, web, table } = await startWeb();
const document: Document = JSON.parse((await web.requestWithoutToken("/api/openapi.json")).text);

const documentedTask = z.object({
  properties: z.looseObject({ columns: z.object({ properties: z.record(z.string(), z.unknown()) }) }),
});

/** Returns the documented schema of a response. It allows no other properties. */
function documentedSchema(operation: Operation, status: number): z.ZodType {
  const type = status < 300 ? "application/json" : "application/problem+json";
  const schema = operation.responses[status]?.content[type]?.schema;
  assert.ok(schema, `${status} is not in the document`);
  const text = JSON.stringify({ ...schema, $defs: document.components.schemas });
  return z.fromJSONSchema(JSON.parse(text.replaceAll("#/components/schemas/", "#/$defs/")));
}

/**
 * Makes a documented request, and validates the response.
 *
 * @returns the status of the response
 */
async function ask(
  method: string,
  path: string,
  values: Readonly<Record<string, string>>,
  body?: unknown,
): Promise<number> {
  const operation = document.paths[path]?.[method];
  assert.ok(operation, `${method} ${path} is not in the document`);
  const query = new URLSearchParams();
  let target = path;
  for (const [name, value] of Object.entries(values)) {
    const location = operation.parameters.find((parameter) => parameter.name === name)?.in;
    if (location === "path") target = target.replace(`{${name}}`, value);
    else query.set(name, value);
  }
  const { status, text } = await web.request(`${target}?${query}`, {
    method: method.toUpperCase(),
    ...(body === undefined ? {} : { json: body }),
  });
  documentedSchema(operation, status).parse(JSON.parse(text));
  return status;
}

const done = await insertTask(client, "SELECT 1");
const failed = await insertTask(client, "SELECT 1/0");
await waitForState(client, done, "DONE");
await waitForState(client, failed, "FAIL");
const planned = await insertTask(client, "SELECT 2", {
  plan: "infinity",
  parent: done,
  remote: "host=nowhere password=secret",
  repeat: "1 hour",
});
const dependent = await insertTask(client, "SELECT 3", { after: [done, planned] });
const filter = {
  table,
  state: "DONE,FAIL",
  group: "group",
  key: "k",
  text: "select",
  from: "2020-01-01T00:00:00Z",
  to: "2999-01-01T00:00:00+01:00",
  waitingFor: "1",
  before: "9223372036854775807",
  after: "-9223372036854775808",
  order: "oldest",
  limit: "7",
};

/** Requests for every operation, with their expected status. */
const requests: readonly (readonly [
  method: string,
  path: string,
  values: Readonly<Record<string, string>>,
  status: number,
  body?: unknown,
])[] = [
  ["get", "/api/tables", {}, 200],
  ["get", "/api/tables/{table}", { table }, 200],
  ["get", "/api/tables/{table}", { table: "none" }, 404],
  ["get", "/api/tables/{table}/history", { table }, 200],
  ["get", "/api/processes", {}, 200],
  ["get", "/api/tables/{table}/runs", { table }, 200],
  ["get", "/api/tables/{table}/runs", { table, hours: "720" }, 200],
  ["get", "/api/tables/{table}/runs", { table, hours: "721" }, 400],
  ["get", "/api/tables/{table}/errors", { table }, 200],
  ["get", "/api/tables/{table}/errors", { table, limit: "0" }, 400],
  ["get", "/api/tables/{table}/matches", { table, state: "FAIL", group: "g" }, 200],
  ["get", "/api/tables/{table}/tasks", { table, order: "slowest", limit: "7" }, 200],
  ["get", "/api/tables/{table}/tasks", { table, order: "slowest", after: "7" }, 400],
  ["get", "/api/tables/{table}/groups", { table }, 200],
  ["get", "/api/tables/{table}/groups", { table, order: "name", after: "g", text: "g", limit: "1000" }, 200],
  ["get", "/api/tables/{table}/groups", { table, after: "g" }, 400],
  ["post", "/api/tables/{table}/bulk", { table }, 201, { change: "delete", filter: { group: "nobody" } }],
  ["get", "/api/tables/{table}/bulk/{bulk}", { table, bulk: "nosuch" }, 404],
  ["post", "/api/tables/{table}/bulk/{bulk}/start", { table, bulk: "nosuch" }, 404],
  ["post", "/api/tables/{table}/bulk/{bulk}/stop", { table, bulk: "nosuch" }, 404],
  ["get", "/api/tables/{table}/tasks", { table }, 200],
  ["get", "/api/tables/{table}/tasks", filter, 200],
  ["get", "/api/tables/{table}/tasks", { table, before: "1; DROP TABLE task" }, 400],
  ["get", "/api/tables/{table}/tasks", { table, text: "x".repeat(201) }, 400],
  ["get", "/api/tables/{table}/tasks", { table, text: "a\0b" }, 400],
  ["get", "/api/tables/{table}/tasks", { table, group: "\0" }, 400],
  ["get", "/api/tables/{table}/tasks", { table, group: "\ud800" }, 200],
  ["get", "/api/tables/{table}/tasks", { table, from: "0000-01-01T00:00:00Z" }, 400],
  ["get", "/api/tables/{table}/tasks", { table, to: "0001-01-01T00:00:00+15:59" }, 200],
  ["get", "/api/tables/{table}/tasks", { table, before: "9223372036854775808" }, 400],
  ["get", "/api/tables/{table}/tasks/{id}", { table, id: done }, 200],
  ["get", "/api/tables/{table}/tasks/{id}", { table, id: failed }, 200],
  ["get", "/api/tables/{table}/tasks/{id}", { table, id: planned }, 200],
  ["get", "/api/tables/{table}/tasks/{id}", { table, id: "404404" }, 404],
  ["get", "/api/tables/{table}/tasks/{id}", { table, id: "9223372036854775808" }, 400],
  ["get", "/api/tables/{table}/tasks", { table, waitingFor: planned }, 200],
  ["get", "/api/tables/{table}/tasks/{id}/dependencies", { table, id: dependent }, 200],
  ["get", "/api/tables/{table}/tasks/{id}/dependencies", { table, id: "404404" }, 404],
  ["get", "/api/tables/{table}/tasks/{id}/dependencies", { table, id: "x" }, 400],
  ["get", "/api/tables/{table}/schedules", { table }, 200],
  ["get", "/api/tables/{table}/schedules", { table, group: "group", text: "select", limit: "1000" }, 200],
  ["get", "/api/tables/{table}/schedules", { table, limit: "1001" }, 400],
  ["get", "/api/tables/{table}/schedules", { table, state: "PLAN" }, 400],
  ["get", "/api/tables/{table}/next", { table, rule: "30 2 * * *" }, 200],
  [
    "get",
    "/api/tables/{table}/next",
    { table, rule: "* * * * *", zone: "UTC", since: "2026-11-23T10:00:00Z", count: "2" },
    200,
  ],
  ["get", "/api/tables/{table}/next", { table, rule: "SELECT now()" }, 400],
  ["get", "/api/tables/{table}/next", { table, rule: "61 * * * *" }, 400],
  ["get", "/api/tables/{table}/next", { table, rule: "* * * * *", zone: "Nowhere" }, 400],
  ["get", "/api/tables/{table}/next", { table }, 400],
  ["post", "/api/tables/{table}/tasks/{id}/pause", { table, id: planned }, 409],
  ["post", "/api/tables/{table}/tasks/{id}/pause", { table, id: done }, 409],
  ["post", "/api/tables/{table}/tasks/{id}/resume", { table, id: planned }, 200],
  ["post", "/api/tables/{table}/tasks/{id}/resume", { table, id: planned }, 409],
  ["post", "/api/tables/{table}/tasks/{id}/pause", { table, id: planned }, 200],
  ["post", "/api/tables/{table}/tasks/{id}/pause", { table, id: "404404" }, 404],
  ["post", "/api/tables/{table}/tasks/{id}/retry", { table, id: planned }, 409],
  ["post", "/api/tables/{table}/tasks/{id}/run-now", { table, id: done }, 409],
  ["post", "/api/tables/{table}/tasks/{id}/run-without-waiting", { table, id: planned }, 409],
  ["post", "/api/tables/{table}/tasks/{id}/retry-without-waiting", { table, id: planned }, 409],
  [
    "post",
    "/api/tables/{table}/tasks/{id}/end-blocker",
    { table, id: planned },
    409,
    { pid: 1, started: "2026-01-01T00:00:00Z", how: "cancel" },
  ],
  ["post", "/api/tables/{table}/tasks/{id}/end-blocker", { table, id: planned }, 400, { pid: 0 }],
  ["post", "/api/tables/{table}/changes/check", { table }, 200, { change: "stop", ids: [planned] }],
  ["post", "/api/tables/{table}/tasks/{id}/stop", { table, id: planned }, 200],
  ["post", "/api/tables/{table}/tasks/{id}/stop", { table, id: "404404" }, 404],
  ["post", "/api/tables/{table}/tasks/{id}/retry", { table, id: done }, 200],
  ["post", "/api/tables/{table}/tasks/{id}/run-now", { table, id: "0x1" }, 400],
  ["get", "/api/tables/{table}/tasks", { table, order: "random" }, 400],
  ["get", "/api/tables/{table}/tasks", { table, after: "x" }, 400],
  ["get", "/api/tables/{table}/columns", { table }, 200],
  ["post", "/api/tables/{table}/tasks/check", { table }, 200, { input: "SELECT 1", timeout: "soon" }],
  ["post", "/api/tables/{table}/tasks/check", { table }, 400, { nosuch: 1 }],
  ["post", "/api/tables/{table}/changes", { table }, 200, { change: "retry", ids: [failed, "404404"] }],
  ["post", "/api/tables/{table}/changes", { table: "none" }, 404, { change: "retry", ids: [failed] }],
  ["post", "/api/tables/{table}/changes", { table }, 400, { change: "retry", ids: [] }],
  ["post", "/api/tables/{table}/changes", { table }, 400, { change: "retry", ids: [1] }],
  ["post", "/api/tables/{table}/changes", { table }, 400, { change: "pause", ids: ["1"] }],
  ["post", "/api/tables/{table}/changes", { table }, 400, { change: "retry", ids: Array(501).fill("1") }],
  ["post", "/api/tables/{table}/changes", { table }, 400, "retry"],
  ["post", "/api/tables/{table}/changes", { table }, 400],
  ["post", "/api/tables/{table}/pause", { table }, 200, { group: "halted", reason: "why not" }],
  ["post", "/api/tables/{table}/pause", { table }, 400, { group: 7 }],
  ["post", "/api/tables/{table}/resume", { table }, 200, { group: "halted" }],
  ["post", "/api/tables/{table}/resume", { table }, 400, { reason: "over" }],
  ["post", "/api/tables/{table}/tasks", { table }, 201, { input: "SELECT 1", plan: "infinity", max: 3 }],
  ["post", "/api/tables/{table}/tasks", { table }, 400, { input: "SELECT 1", max: "3" }],
  ["post", "/api/tables/{table}/tasks", { table }, 400, { input: "SELECT 1", timeout: "soon" }],
  ["post", "/api/tables/{table}/tasks", { table }, 404, { copy: { id: "404404", columns: ["input"] } }],
  ["post", "/api/tables/{table}/tasks/{id}/delete", { table, id: "404404" }, 404],
];

for (const [method, path, values, status, body] of requests) {
  const shown = Object.entries(values).filter(([name]) => name !== "table");
  const sent = body === undefined ? "" : ` ${JSON.stringify(body).slice(0, 80)}`;
  it(`answers ${method} ${path} as documented, with ${status}: ${JSON.stringify(shown)}${sent}`, async () => {
    assert.equal(await ask(method, path, values, body), status);
  });
}

it("has a valid OpenAPI document, by two validators", async () => {
  const { valid, errors } = await new Validator().validate(JSON.parse(JSON.stringify(document)));
  assert.deepEqual([valid, errors], [true, undefined]);
  const config = await createConfig({ extends: ["spec"], rules: { "operation-operationId-unique": "error" } });
  const problems = await lintFromString({ source: JSON.stringify(document), config });
  assert.deepEqual(
    problems.map(({ message, location }) => [message, location[0]?.pointer]),
    [],
  );
});

it("answers other methods with 405 and those that are allowed, as problem details", async () => {
  for (const [path, method, allowed] of [
    [`/api/tables/${table}/tasks`, "DELETE", "GET, HEAD, POST"],
    [`/api/tables/${table}/tasks/${done}/retry`, "GET", "POST"],
    ["/api/openapi.json", "POST", "GET, HEAD"],
    ["/health", "PUT", "GET, HEAD"],
    ["/metrics", "POST", "GET, HEAD"],
    ["/", "POST", "GET, HEAD"],
  ] as const) {
    const { status, headers, text } = await web.request(path, { method });
    assert.deepEqual(
      [status, headers.get("allow"), headers.get("content-type")],
      [405, allowed, "application/problem+json"],
    );
    assert.deepEqual(JSON.parse(text), {
      type: "about:blank",
      title: "Method Not Allowed",
      status: 405,
      detail: `expected ${allowed}, got ${method}`,
      code: "METHOD_NOT_ALLOWED",
    });
  }
  assert.equal((await web.request("/api/nosuch", { method: "DELETE" })).status, 404);
});

it("explains what is wrong with a request", async () => {
  for (const [query, message] of [
    ["limit=x", 'limit: expected a whole number from 1 to 200, got "x"'],
    ["limit=1.5", 'limit: expected a whole number from 1 to 200, got "1.5"'],
    ...["1e2", "0x10", "%205", "5%20", "5abc", "%2B5", "-5", "05", "5.0", "", "201", "1_0", "٥", "9".repeat(400)].map(
      (number) => [
        `limit=${number}`,
        `limit: expected a whole number from 1 to 200, got ${JSON.stringify(decodeURIComponent(number))}`,
      ],
    ),
    ...["1e3", "0x10", " 5", "5abc", "05", "-0", "+5"].map((id) => [
      `before=${encodeURIComponent(id)}`,
      `before: expected a task id, a whole number, got ${JSON.stringify(id)}`,
    ]),
    ["limit=5&limit=6", "limit: expected one value, got 2"],
    ["limit=0", 'limit: expected a whole number from 1 to 200, got "0"'],
    [
      "state=NOPE",
      'state: expected comma-separated states out of PLAN, TAKE, WORK, DONE, FAIL, GONE, STOP, got "NOPE"',
    ],
    ["before=x", 'before: expected a task id, a whole number, got "x"'],
    ["waitingFor=x", 'waitingFor: expected a task id, a whole number, got "x"'],
    ["from=yesterday", 'from: expected an ISO 8601 time such as 2026-11-23T10:00:00Z, got "yesterday"'],
    ["text=", 'text: expected 1 to 200 characters, got ""'],
    ["share=a", "share: tasks of this table have none, because pg_task.share is empty"],
    ["another=1", "another: unknown parameter"],
  ]) {
    const { status, text } = await web.requestWithoutToken(`/api/tables/${table}/tasks?${query}`, {
      headers: { Authorization: `Bearer ${token}` },
    });
    assert.deepEqual([status, JSON.parse(text).detail], [400, message]);
  }
});

it("shows what a task waits for as a graph, and lists the tasks that wait for another one", async () => {
  const graph = await web.get(dependencyGraphSchema, `/api/tables/${table}/tasks/${dependent}/dependencies`);
  assert.deepEqual(
    graph.edges.map(({ task, predecessor }) => [task, predecessor]),
    [
      [dependent, done],
      [dependent, planned],
    ],
  );
  assert.deepEqual(new Set(graph.nodes.map(({ id }) => id)), new Set([dependent, done, planned]));
  assert.equal(graph.nodes[0]?.id, dependent);
  const first = await insertTask(client, "SELECT 4", { plan: "infinity" });
  const held = await insertTask(client, "SELECT 5", { after: [first] });
  const { tasks } = await web.get(taskListSchema, `/api/tables/${table}/tasks?waitingFor=${first}`);
  assert.deepEqual(
    tasks.map(({ id }) => id),
    [held],
  );
});

it("lists the tasks with a key", async () => {
  const waiting = await insertTask(client, "SELECT 6", { plan: "infinity", key: "order 42" });
  const ended = await insertTask(client, "SELECT 7", { plan: "2020-01-01", key: "order 42", state: "STOP" });
  await insertTask(client, "SELECT 8", { plan: "infinity", key: "order 421" });
  for (const [query, expected] of [
    ["key=order%2042", [ended, waiting]],
    ["key=order%2042&order=oldest", [waiting, ended]],
    ["key=order%2042&state=PLAN", [waiting]],
    ["key=order", []],
  ] as const) {
    const { tasks } = await web.get(taskListSchema, `/api/tables/${table}/tasks?${query}`);
    assert.deepEqual(
      tasks.map(({ id }) => id),
      expected,
      query,
    );
  }
});

it("documents every column of the task table, and lists ids as strings", async () => {
  const { properties } = documentedTask.parse(document.components.schemas["Task"]);
  const documented = new Set([...Object.keys(properties), ...Object.keys(properties.columns.properties)]);
  const { rows: columns } = await client.query<{ name: string }>(
    "SELECT attname AS name FROM pg_attribute WHERE attrelid = 'task'::regclass AND attnum > 0 AND NOT attisdropped",
  );
  assert.deepEqual(
    columns.map(({ name }) => name).filter((name) => !documented.has(name)),
    [],
  );
  const names = new Set(columns.map(({ name }) => name));
  assert.deepEqual(
    Object.keys(properties.columns.properties).filter((name) => !names.has(name)),
    [],
  );
  const { task } = await web.get(taskDetailSchema, `/api/tables/${table}/tasks/${dependent}`);
  assert.deepEqual(task.columns["after"], [done, planned]);
  const shown = new Set([...Object.keys(task), ...Object.keys(task.columns)]);
  assert.deepEqual(
    [...documented].filter((name) => !shown.has(name)),
    [],
  );
});

it("runs a planned task now on request", async () => {
  const id = await insertTask(client, "SELECT 3", { plan: "infinity" });
  assert.equal(await ask("post", "/api/tables/{table}/tasks/{id}/run-now", { table, id }), 200);
  await waitForState(client, id, "DONE");
});

it("rejects every operation without the token and from other sites, as documented", async () => {
  for (const [path, operations] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      const target = path.replace("{table}", table).replace("{id}", done).replace("{bulk}", "x");
      for (const [headers, status] of [
        [{}, 401],
        [{ Authorization: "Bearer wrong" }, 401],
        [{ Authorization: `Bearer ${token}`, Origin: "http://evil.example" }, 403],
      ] as const) {
        const answer = await web.requestWithoutToken(target, {
          method: method.toUpperCase(),
          headers,
        });
        assert.equal(answer.status, status, `${method} ${target}`);
        documentedSchema(operation, status).parse(JSON.parse(answer.text));
      }
    }
  }
});

it("has the same operations in the OpenAPI document, in docs/web.md and in this test", async () => {
  const documented = Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.keys(operations).map((method) => `${method} ${path}`),
  );
  assert.deepEqual(
    new Set(documented),
    new Set([...requests.map(([method, path]) => `${method} ${path}`), "get /api/events"]),
  );
  const inDocs = [...readFileSync(projectPath("docs/web.md"), "utf8").matchAll(/^\| `(GET|POST) ([^`?]+)`/gm)].map(
    ([, method = "", path = ""]) =>
      `${method.toLowerCase()} ${path.replace("ID", "{table}").replace("TASK", "{id}").replace("BULK", "{bulk}")}`,
  );
  assert.deepEqual(new Set(inDocs), new Set(documented));
  for (const path of ["/api", "/api/nothing", `/api/tables/${table}/nothing`]) {
    assert.equal((await web.request(path)).status, 404, path);
  }
});
