import { STATUS_CODES } from "node:http";
import type { HttpBindings } from "@hono/node-server";
import { Hono, type Context } from "hono";
import type { Log } from "../shared/log.js";
import { apiRoutes } from "./api/routes.js";
import { inlineScriptHashes, pageHtml, readAssets } from "./http/assets.js";
import type { ApiContext } from "./api/route.js";
import { eventStream } from "./api/events.js";
import { acceptsGzip, compressed } from "./http/compression.js";
import { limitedBodies, type HttpLimits } from "./http/limits.js";
import { isLocalOnly, sameOriginOnly, securityHeaders, type Reach } from "./http/middleware.js";
import { accessReader, tokenRequired, type AccessReader, type ProxyLogin, type Tokens } from "./http/token.js";
import type { ConnectionLimit } from "./http/connectionLimit.js";
import { mountOf, senderOf, type Sender } from "./http/mount.js";
import { rareReport } from "./http/rareReport.js";
import type { Metrics } from "./metrics/metrics.js";
import { createOpenApi } from "./api/openApi.js";
import { statusByCode, ApiError, type ApiErrorCode, type ValueError } from "./errors.js";
import { healthOf, healthStatus, isServing, whyNotServing } from "./api/status.js";

export interface AppContext extends ApiContext {
  readonly metrics: Metrics;
  readonly tokens: () => Tokens;
  readonly proxyLogin: () => ProxyLogin | null;
  readonly reach: (context: Context) => Reach;
  readonly limits: HttpLimits;
  readonly connections: ConnectionLimit;
}

export function createApp(context: AppContext): Hono {
  const app = new Hono();
  app.use(securityHeaders(inlineScriptHashes));
  app.use(sameOriginOnly(context.reach));
  app.use(limitedBodies(context.limits));
  app.use(compressed());
  app.onError((error, request) => errorResponse(request, error, context.log));
  app.notFound((request) => problem(request, "NOT_FOUND", "there is no such address"));
  const reportWrong = rareReport<Sender>((sender, requests) =>
    context.log.warn({ ...sender, requests }, "wrong HTTP token"),
  );
  const accessOf = accessReader(context.tokens, context.proxyLogin, (request) => reportWrong(senderOf(request)));
  addProbes(app, accessOf, context);
  app.route("/api", createApi(context, accessOf));
  addPage(app);
  refuseOtherMethods(app);
  return app;
}

/** Without a token, other machines learn only whether this process is ready. No response contains text of tasks. */
function addProbes(
  app: Hono,
  accessOf: AccessReader,
  { cluster, tables, metrics, version, connections, reach }: AppContext,
): void {
  const needsToken = tokenRequired(accessOf, connections);
  app.get("/health", (context) => {
    const isTrusted = accessOf(context) !== null;
    const health =
      isTrusted || isLocalOnly(reach(context))
        ? healthOf(cluster, tables.all, { version, isTrusted })
        : { status: healthStatus(cluster) };
    return context.json(health, cluster.ready ? 200 : 503);
  });
  app.get("/ready", (context) => {
    if (isServing(cluster, tables.all)) return context.text("ready\n");
    const isTrusted = accessOf(context) !== null;
    const mayKnowWhy = isTrusted || isLocalOnly(reach(context));
    const why = mayKnowWhy ? `: ${whyNotServing(cluster, tables.all, isTrusted)}` : "";
    return context.text(`not ready${why}\n`, 503);
  });
  app.get("/metrics", async (context, next) =>
    isLocalOnly(reach(context)) ? await next() : await needsToken(context, next),
  );
  app.get("/metrics", async (context) =>
    context.body(await metrics.text(), 200, { "Content-Type": metrics.contentType }),
  );
}

function createApi(context: AppContext, accessOf: AccessReader): Hono {
  const routes = apiRoutes(context);
  const document = createOpenApi(routes, context.version);
  const api = new Hono();
  api.get("/openapi.json", (request) =>
    request.json({ ...document, servers: [{ url: mountOf(request).base || "/" }] }),
  );
  api.use(tokenRequired(accessOf, context.connections));
  const events = new Hono<{ Bindings: HttpBindings }>();
  events.get("/", (request) => eventStream(request, context));
  api.route("/events", events);
  for (const route of routes) route.mount(api);
  return api;
}

function servePage(context: Context): Response {
  context.header("Cache-Control", "no-cache");
  return context.html(pageHtml(mountOf(context).base));
}

function addPage(app: Hono): void {
  const assets = readAssets();
  const views = ["", "/tasks", "/tasks/:id", "/schedules", "/add", "/errors"].map((view) => `/tables/:table${view}`);
  for (const path of ["/", "/processes", ...views]) app.get(path, servePage);
  for (const [path, { body, compressed: smaller, type, etag }] of assets) {
    app.get(path, (context) => {
      const headers = { "Content-Type": type, ETag: etag, "Cache-Control": "no-cache" };
      if (!acceptsGzip(context)) return context.body(body, 200, headers);
      return context.body(smaller, 200, { ...headers, "Content-Encoding": "gzip" });
    });
  }
}

function errorResponse(context: Context, error: unknown, log: Log): Response {
  if (error instanceof ApiError) return problem(context, error.code, error.message, error.errors);
  log.error({ err: error, path: context.req.path }, "request failed");
  return problem(context, "INTERNAL", "internal error: see the log of pg-task");
}

/** RFC 9457. */
function problem(context: Context, code: ApiErrorCode, detail: string, errors?: readonly ValueError[]): Response {
  const status = statusByCode[code];
  const body = { type: "about:blank", title: STATUS_CODES[status] ?? "", status, detail, code, errors };
  return context.body(JSON.stringify(body), status, { "Content-Type": "application/problem+json" });
}

function refuseOtherMethods(app: Hono): void {
  const methods = new Map<string, Set<string>>();
  for (const { path, method } of app.routes) {
    if (method === "ALL") continue;
    const allowed = methods.get(path) ?? new Set();
    methods.set(path, method === "GET" ? allowed.add("GET").add("HEAD") : allowed.add(method));
  }
  for (const [path, allowed] of methods) {
    app.all(path, (context) => {
      const list = [...allowed].join(", ");
      context.header("Allow", list);
      throw new ApiError("METHOD_NOT_ALLOWED", `expected ${list}, got ${context.req.method}`);
    });
  }
}
