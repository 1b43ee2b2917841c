import type { HttpBindings } from "@hono/node-server";
import { Hono, type Context } from "hono";
import type { ClusterView } from "../shared/clusterStatus.js";
import type { Log } from "../shared/log.js";
import { apiRoutes } from "./api/routes.js";
import { importMapHash, pageHtml, readAssets } from "./http/assets.js";
import { eventStream } from "./api/events.js";
import { sameOriginOnly, securityHeaders, tokenRequired } from "./http/middleware.js";
import type { Metrics } from "./metrics/metrics.js";
import { openApi } from "./api/openApi.js";
import { problemStatus, WebProblem, type ProblemCode } from "./errors.js";
import type { WebTables } from "./data/webTables.js";
import { healthView } from "./api/views.js";

export interface AppParts {
  readonly cluster: ClusterView;
  readonly tables: WebTables;
  readonly metrics: Metrics;
  readonly version: string;
  readonly token: () => string;
  /** The host that is listened on. */
  readonly host: () => string;
  readonly mostSessions: () => number;
  readonly log: Log;
}

/** Everything that is answered over HTTP. */
export function createApp(parts: AppParts): Hono {
  const app = new Hono();
  app.use(securityHeaders([importMapHash]));
  app.use(sameOriginOnly(parts.host));
  app.onError((error, context) => refuse(context, error, parts.log));
  app.notFound((context) => problem(context, "NOT_FOUND", "there is nothing at this address"));
  addProbes(app, parts);
  app.route("/api", api(parts));
  addPage(app);
  return app;
}

/** For machines, without a token: no task's text is in there. */
function addProbes(app: Hono, { cluster, tables, metrics, version }: AppParts): void {
  app.get("/health", (context) =>
    context.json(healthView(cluster, tables.all, version), cluster.ready ? 200 : 503),
  );
  app.get("/ready", (context) =>
    context.text(cluster.ready ? "ready\n" : "not ready\n", cluster.ready ? 200 : 503),
  );
  app.get("/metrics", async (context) =>
    context.body(await metrics.text(), 200, { "Content-Type": metrics.contentType }),
  );
}

function api(parts: AppParts): Hono {
  const routes = apiRoutes(parts);
  const document = openApi(routes, { base: "/api", version: parts.version });
  const own = new Hono();
  own.get("/openapi.json", (context) => context.json(document));
  own.use(tokenRequired(parts.token));
  const events = new Hono<{ Bindings: HttpBindings }>();
  events.get("/", (context) => eventStream(context, parts));
  own.route("/events", events);
  for (const route of routes) route.mount(own);
  return own;
}

function page(context: Context): Response {
  context.header("Cache-Control", "no-cache");
  return context.html(pageHtml);
}

function addPage(app: Hono): void {
  const assets = readAssets();
  app.get("/", page);
  app.get("/tables/:table", page);
  app.get("/tables/:table/tasks", page);
  app.get("/tables/:table/tasks/:id", page);
  for (const [path, { body, type, etag }] of assets) {
    app.get(path, (context) => {
      const headers = { "Content-Type": type, ETag: etag, "Cache-Control": "no-cache" };
      if (context.req.header("if-none-match") === etag) return context.body(null, 304, headers);
      return context.body(body, 200, headers);
    });
  }
}

function refuse(context: Context, error: unknown, log: Log): Response {
  if (error instanceof WebProblem) return problem(context, error.code, error.message);
  log.error({ err: error, path: context.req.path }, "request failed");
  return problem(context, "INTERNAL", "something went wrong: see pg-task's log");
}

function problem(context: Context, code: ProblemCode, message: string): Response {
  return context.json({ error: { code, message } }, problemStatus[code]);
}
