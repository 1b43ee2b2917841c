import type { Context, Hono } from "hono";
import { z } from "zod";
import type { ClusterView } from "../../shared/clusterStatus.js";
import type { Log } from "../../shared/log.js";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import type { ConnectionPool } from "../data/connectionPool.js";
import type { WebTable } from "../data/webTable.js";
import type { WebTables } from "../data/webTables.js";
import { ApiError } from "../errors.js";
import { senderOf, type Sender } from "../http/mount.js";
import { taskIdSchema } from "./model.js";

const nothing = z.strictObject({});

export interface ControlDatabase {
  /** Of the cluster. */
  readonly name: string;
  readonly target: ConnectionTarget;
  readonly pool: ConnectionPool;
}

/** What the operations are about. */
export interface ApiContext {
  readonly cluster: ClusterView;
  readonly tables: WebTables;
  readonly log: Log;
  readonly version: string;
  readonly maxSessions: () => number;
  readonly control: () => ControlDatabase;
}

interface Operation<Query extends z.ZodObject, Body extends z.ZodType, Response extends z.ZodType> {
  readonly summary: string;
  readonly query?: Query;
  readonly body?: Body;
  readonly response: Response;
  readonly status?: 200 | 201;
}

/** A validated request. `table`, `id` and `bulk` are "" if the path has no such parameter. */
interface Request<Query, Body> {
  readonly table: string;
  readonly id: string;
  readonly bulk: string;
  readonly query: Query;
  readonly body: Body;
  readonly sender: Sender;
}

export interface Route extends Operation<z.ZodObject, z.ZodType, z.ZodType> {
  readonly method: "get" | "post";
  /** In OpenAPI's notation, such as `/tables/{table}`. */
  readonly path: string;
  readonly parameters: z.ZodObject;
  readonly query: z.ZodObject;
  readonly mount: (app: Hono) => void;
}

type Answered<Query extends z.ZodObject, Body extends z.ZodType, Response extends z.ZodType, Given> = Operation<
  Query,
  Body,
  Response
> & { readonly handle: (request: Given) => Promise<z.output<Response>> };

export function defineRoute<
  Response extends z.ZodType,
  Query extends z.ZodObject = typeof nothing,
  Body extends z.ZodType = z.ZodUndefined,
>(
  method: Route["method"],
  path: string,
  { handle, ...operation }: Answered<Query, Body, Response, Request<z.output<Query>, z.output<Body>>>,
): Route {
  const { body, status = 200 } = operation;
  const parameters = z.strictObject({
    ...(path.includes("{table}") ? { table: z.string() } : {}),
    ...(path.includes("{id}") ? { id: taskIdSchema } : {}),
    ...(path.includes("{bulk}") ? { bulk: z.string() } : {}),
  });
  const query: z.ZodObject = operation.query ?? nothing;
  const respond = async (context: Context): Promise<globalThis.Response> => {
    const { table = "", id = "", bulk = "" } = validated(parameters, context.req.param(), "parameter");
    const request = {
      table,
      id,
      bulk,
      query: validated(query, singleValues(context.req.queries()), "parameter"),
      body: body === undefined ? undefined : validated(body, await readJson(context), "property"),
      sender: senderOf(context),
    };
    context.header("Cache-Control", "no-store");
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the schemas have just validated it
    const answer = await handle(request as Request<z.output<Query>, z.output<Body>>);
    return context.json(answer, status);
  };
  return {
    ...operation,
    method,
    path,
    parameters,
    query,
    mount: (app) => void app.on(method, path.replace(/\{(\w+)\}/g, ":$1"), respond),
  };
}

export function routesOfTables(tables: WebTables) {
  return <R extends z.ZodType, Q extends z.ZodObject, B extends z.ZodType>(
    method: Route["method"],
    path: string,
    { handle, ...operation }: Answered<Q, B, R, Request<z.output<Q>, z.output<B>> & { readonly webTable: WebTable }>,
  ): Route =>
    defineRoute<R, Q, B>(method, `/tables/{table}${path}`, {
      ...operation,
      handle: async (request) => await handle({ ...request, webTable: tables.byId(request.table) }),
    });
}

export type OnTable = ReturnType<typeof routesOfTables>;

/** @throws ApiError INVALID if a parameter is given twice */
function singleValues(given: Readonly<Record<string, readonly string[]>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(given).map(([name, [value = "", ...others]]) => {
      if (others.length > 0) throw new ApiError("INVALID", `${name}: expected one value, got ${others.length + 1}`);
      return [name, value];
    }),
  );
}

/** @throws ApiError INVALID with one line for each problem; values are shown only of parameters */
function validated<T extends z.ZodType>(schema: T, given: unknown, what: "parameter" | "property"): z.output<T> {
  const { data, error } = schema.safeParse(given);
  if (error === undefined) return data;
  const lines = error.issues.flatMap((issue) => {
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => `${[...issue.path, key].join(".")}: unknown ${what}`);
    }
    const name = issue.path.join(".");
    const got = what === "parameter" ? `, got ${JSON.stringify(Reflect.get(Object(given), name))}` : "";
    return [`${name === "" ? "" : `${name}: `}${issue.message}${got}`];
  });
  throw new ApiError("INVALID", [...new Set(lines)].join("\n"));
}

/** @throws ApiError INVALID */
async function readJson(context: Context): Promise<unknown> {
  const type = context.req.header("content-type") ?? "";
  if (!/^application\/json *(;|$)/i.test(type)) {
    throw new ApiError("INVALID", `expected a body of type application/json, got ${JSON.stringify(type)}`);
  }
  const text = await context.req.text();
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError("INVALID", "the body is not valid JSON");
  }
}
