import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createRequire } from "node:module";
import { after, it } from "node:test";
import { getRequestListener, type HttpBindings } from "@hono/node-server";
import { RESPONSE_ALREADY_SENT } from "@hono/node-server/utils/response";
import { Hono } from "hono";
import { pino } from "pino";
import { PgTaskError, start } from "../../../src/library/index.js";
import { clusterSchema, tableSchema } from "../../../src/web/api/schemas.js";
import { noBrowserReason } from "../../support/browser.js";
import { createDatabase } from "../../support/database.js";
import { listen } from "../../support/listen.js";
import { openPage } from "../../support/page.js";
import { startWeb } from "../../support/startWeb.js";
import { insertTask, waitForState } from "../../support/tasks.js";
import { untyped } from "../../support/untyped.js";

const { client, config, pgTask, web, table } = await startWeb({ "pg_http.user": "X-Forwarded-User" });

const lines: Record<string, unknown>[] = [];
const own = await createDatabase();
const ownClient = await own.connect();
const running = await start({
  config: { url: own.url, "pg_task.sleep": 100 },
  logger: pino({ level: "info" }, { write: (line: string) => void lines.push(JSON.parse(line)) }),
});
after(() => running.stop({ graceMs: 0 }));

const require = createRequire(import.meta.url);

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** What the tests need of Express, which has no declarations of its own, and of Fastify. */
interface Express extends Handler {
  use(...handler: [Handler] | [path: string, handler: Handler]): void;
}

interface Fastify {
  readonly server: Server;
  addHook(name: "onRequest", hook: (request: { raw: IncomingMessage }, reply: Reply) => Promise<void>): void;
  get(path: string, handler: () => Promise<string>): void;
  ready(): Promise<void>;
}

interface Reply {
  readonly raw: ServerResponse;
  hijack(): void;
}

const named = (user: string): RequestInit => ({ headers: { "X-Forwarded-User": user } });

it("takes the user from a header of a proxy that it trusts, and logs who has changed what", async () => {
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
  const read = await web.requestWithoutToken("/api/tables", named("ada"));
  assert.deepEqual(
    ["pg-task-access", "pg-task-user"].map((name) => read.headers.get(name)),
    ["full", "ada"],
  );
  const path = `/api/tables/${table}/tasks/${id}/retry`;
  assert.equal((await web.requestWithoutToken(path, { method: "POST", ...named("ada") })).status, 200);
  assert.equal((await pgTask.line("changed over HTTP"))["user"], "ada");
  const foreign = { ...named("ada"), method: "POST" };
  foreign.headers = { "X-Forwarded-User": "ada", Origin: "http://evil.example" };
  assert.equal((await web.requestWithoutToken(path, foreign)).status, 403);
  for (const options of [{}, named(""), { headers: { "X-Other": "ada" } }]) {
    assert.equal((await web.requestWithoutToken("/api/tables", options)).status, 401);
  }
  await pgTask.reload(untyped({ ...config, "pg_http.proxies": "10.0.0.0/8,2001:db8::1" }));
  assert.equal((await web.requestWithoutToken("/api/tables", named("ada"))).status, 401, "no trusted proxy");
  await pgTask.reload(untyped({ ...config, "pg_http.user": "" }));
  assert.equal((await web.requestWithoutToken("/api/tables", named("ada"))).status, 401, "not configured");
});

it("serves under the path of a proxy, which removes it or not", async () => {
  await pgTask.reload(untyped({ ...config, "pg_http.base": "/tools/pg-task" }));
  for (const base of ["", "/tools/pg-task"]) {
    const { text } = await web.requestWithoutToken(`${base}/`);
    assert.match(text, / src="\/tools\/pg-task\/page\/page\.js"/);
    assert.equal((await web.request(`${base}/api/tables`)).status, 200);
  }
  await pgTask.reload(untyped(config));
});

/** Says by a header who has logged in. */
const login = ({ headers }: { readonly headers: NodeJS.Dict<string | string[]> }) =>
  typeof headers["x-user"] === "string" ? { user: headers["x-user"], readOnly: headers["x-user"] === "guest" } : null;

it("answers in a server of the program under a path, with the program's own login", async () => {
  const handler = running.webHandler({ base: "/admin/tasks", login });
  const server = createServer((request, response) => {
    if (request.url?.startsWith("/admin/tasks") === true) handler(request, response);
    else response.end("mine");
  });
  const url = `http://127.0.0.1:${await listen(server)}`;
  assert.equal(await (await fetch(`${url}/`)).text(), "mine");
  const ask = async (path: string, user?: string, method = "GET"): Promise<Response> =>
    await fetch(`${url}/admin/tasks${path}`, { method, headers: user === undefined ? {} : { "X-User": user } });
  assert.deepEqual([(await ask("/api/tables")).status, (await ask("/metrics")).status], [401, 401]);
  const { tables } = clusterSchema.parse(await (await ask("/api/tables", "guest")).json());
  const id = await insertTask(ownClient, "SELECT 1", { plan: "infinity" });
  const path = `/api/tables/${tables[0]?.id}/tasks/${id}/run-now`;
  assert.equal((await ask(path, "guest", "POST")).status, 403);
  assert.equal((await ask(path, "ada", "POST")).status, 200);
  await waitForState(ownClient, id, "DONE");
  const logged = lines.filter(({ msg }) => msg === "changed over HTTP");
  assert.deepEqual(
    logged.map(({ user, action }) => [user, action]),
    [["ada", "run-now"]],
  );
});

const ada = (): { user: string } => ({ user: "ada" });

/** The servers of the table in docs/library.md, each with a handler of its own beside ours. */
const frameworks: Readonly<Record<string, () => Promise<Server>>> = {
  Express: async () => {
    const express: () => Express = require("express");
    const app = express();
    app.use("/tasks", running.webHandler({ login: ada }));
    app.use((_, response) => void response.end("mine"));
    return createServer(app);
  },
  Fastify: async () => {
    const fastify: () => Fastify = require("fastify");
    const app = fastify();
    const tasks = running.webHandler({ base: "/tasks", login: ada });
    app.addHook("onRequest", async (request, reply) => {
      if (!request.raw.url?.startsWith("/tasks")) return;
      reply.hijack();
      tasks(request.raw, reply.raw);
    });
    app.get("/", async () => "mine");
    await app.ready();
    return app.server;
  },
  Hono: async () => {
    const app = new Hono<{ Bindings: HttpBindings }>();
    const tasks = running.webHandler({ base: "/tasks", login: ada });
    app.all("/tasks/*", ({ env }) => {
      tasks(env.incoming, env.outgoing);
      return RESPONSE_ALREADY_SENT;
    });
    app.get("/", (context) => context.text("mine"));
    const listener = getRequestListener(app.fetch);
    return createServer((request, response) => void listener(request, response));
  },
};

for (const [name, create] of Object.entries(frameworks)) {
  it(`answers in a server of ${name}`, async () => {
    const url = `http://127.0.0.1:${await listen(await create())}`;
    assert.equal(await (await fetch(`${url}/`)).text(), "mine");
    assert.match(await (await fetch(`${url}/tasks/`)).text(), / src="\/tasks\/page\/page\.js"/);
    const { tables } = clusterSchema.parse(await (await fetch(`${url}/tasks/api/tables`)).json());
    const path = `${url}/tasks/api/tables/${tables[0]?.id}`;
    const pause = { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"group":"mail"}' };
    assert.equal((await fetch(`${path}/pause`, pause)).status, 200);
    const { summary } = tableSchema.parse(await (await fetch(path)).json());
    assert.deepEqual(
      summary?.paused.map(({ group }) => group),
      ["mail"],
    );
    await ownClient.query("DELETE FROM task_pause");
  });
}

it("its page works under a path, without a token", { skip: noBrowserReason }, async () => {
  const id = await insertTask(ownClient, "SELECT 42", { group: "here" });
  await waitForState(ownClient, id, "DONE");
  const handler = running.webHandler({ base: "/admin/tasks", login: ada });
  const url = `http://127.0.0.1:${await listen(createServer(handler))}`;
  const page = await openPage({ url, token: "" }, "/admin/tasks", { token: null });
  await page.getByRole("link", { name: "Tasks", exact: true }).click();
  await page.locator(`tr[data-id="${id}"] th a`).click();
  await page.getByRole("heading", { name: `Task ${id}` }).waitFor();
  assert.match(new URL(page.url()).pathname, new RegExp(`^/admin/tasks/tables/\\w+/tasks/${id}$`));
  await page.reload();
  await page.locator("pre", { hasText: "42" }).last().waitFor();
  await page.goBack();
  await page.locator(`tr[data-id="${id}"]`).waitFor();
});

it("refuses wrong options", () => {
  for (const options of [{ base: "tasks/" }, { login: "ada" }, { path: "/" }]) {
    assert.throws(
      () => running.webHandler(untyped(options)),
      (error) => error instanceof PgTaskError && error.code === "USAGE",
    );
  }
});
