import type { Context, Hono } from "hono";
import type { z } from "zod";
import { ApiError } from "../errors.js";
import { senderOf, type Sender } from "../http/sender.js";

interface Operation<P extends z.ZodObject, Q extends z.ZodObject, R extends z.ZodType> {
  readonly method: "get" | "post";
  /** The path in OpenAPI's notation, for example `/tables/{table}`. */
  readonly path: string;
  readonly summary: string;
  readonly parameters: P;
  readonly query: Q;
  readonly response: R;
  /** HTTP status of a success. Default: 200. */
  readonly status?: 200 | 201;
}

interface Request<P extends z.ZodObject, Q extends z.ZodObject> {
  readonly parameters: z.output<P>;
  readonly query: z.output<Q>;
  readonly sender: Sender;
}

/** One operation of the API. */
export interface Route extends Operation<z.ZodObject, z.ZodObject, z.ZodType> {
  /** The JSON in the request's body, if it has one. */
  readonly body?: z.ZodType;
  readonly mount: (app: Hono) => void;
}

/** Defines a route that validates its parameters before it calls `handle`. */
export function defineRoute<P extends z.ZodObject, Q extends z.ZodObject, R extends z.ZodType>({
  handle,
  ...operation
}: Operation<P, Q, R> & { readonly handle: (request: Request<P, Q>) => Promise<z.output<R>> }): Route {
  return createRoute(operation, async (_, request) => await handle(request));
}

/** Defines a route that validates its parameters and the JSON in the request's body before it calls `handle`. */
export function defineBodyRoute<
  P extends z.ZodObject,
  Q extends z.ZodObject,
  R extends z.ZodType,
  B extends z.ZodType,
>({
  handle,
  body,
  ...operation
}: Operation<P, Q, R> & {
  readonly body: B;
  readonly handle: (request: Request<P, Q> & { readonly body: z.output<B> }) => Promise<z.output<R>>;
}): Route {
  const route = createRoute(
    operation,
    async (context, request) => await handle({ ...request, body: validatedBody(body, await readJson(context)) }),
  );
  return { ...route, body };
}

function createRoute<P extends z.ZodObject, Q extends z.ZodObject, R extends z.ZodType>(
  operation: Operation<P, Q, R>,
  answer: (context: Context, request: Request<P, Q>) => Promise<z.output<R>>,
): Route {
  const { method, path, status = 200 } = operation;
  const respond = async (context: Context): Promise<Response> => {
    const parameters = validated(operation.parameters, context.req.param());
    const query = validated(operation.query, singleValues(context.req.queries()));
    context.header("Cache-Control", "no-store");
    return context.json(await answer(context, { parameters, query, sender: senderOf(context) }), status);
  };
  return { ...operation, mount: (app) => void app.on(method, path.replace(/\{(\w+)\}/g, ":$1"), respond) };
}

/**
 * Returns the values of a query's parameters.
 *
 * @throws ApiError INVALID if a parameter is given twice
 */
function singleValues(given: Readonly<Record<string, readonly string[]>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(given).map(([name, [value = "", ...others]]) => {
      if (others.length > 0) throw new ApiError("INVALID", `${name}: expected one value, got ${others.length + 1}`);
      return [name, value];
    }),
  );
}

/**
 * Validates parameters.
 *
 * @throws ApiError INVALID with one line for each problem
 */
function validated<T extends z.ZodObject>(schema: T, given: Readonly<Record<string, string>>): z.output<T> {
  const { data, error } = schema.safeParse(given);
  if (error === undefined) return data;
  const lines = error.issues.flatMap((issue) => {
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => `${key}: unknown parameter`);
    }
    const name = issue.path.join(".");
    return [`${name}: ${issue.message}, got ${JSON.stringify(given[name])}`];
  });
  throw new ApiError("INVALID", [...new Set(lines)].join("\n"));
}

/**
 * Validates the body of a request.
 *
 * @throws ApiError INVALID with one line for each problem
 */
function validatedBody<B extends z.ZodType>(schema: B, given: unknown): z.output<B> {
  const { data, error } = schema.safeParse(given);
  if (error === undefined) return data;
  const lines = error.issues.flatMap((issue) => {
    const name = issue.path.join(".");
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => `${[...issue.path, key].join(".")}: unknown property`);
    }
    return [name === "" ? issue.message : `${name}: ${issue.message}`];
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
