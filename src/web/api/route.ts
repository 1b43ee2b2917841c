import type { Context, Hono } from "hono";
import type { z } from "zod";
import { ApiError } from "../errors.js";

interface RouteDefinition<P extends z.ZodObject, Q extends z.ZodObject, R extends z.ZodType> {
  readonly method: "get" | "post";
  /** The path in OpenAPI's notation, for example `/tables/{table}`. */
  readonly path: string;
  readonly summary: string;
  readonly parameters: P;
  readonly query: Q;
  readonly response: R;
  readonly handle: (request: { readonly parameters: z.output<P>; readonly query: z.output<Q> }) => Promise<z.output<R>>;
}

/** One operation of the API. */
export interface Route extends Omit<RouteDefinition<z.ZodObject, z.ZodObject, z.ZodType>, "handle"> {
  readonly mount: (app: Hono) => void;
}

/** Defines a route that validates its parameters before it calls `handle`. */
export function defineRoute<P extends z.ZodObject, Q extends z.ZodObject, R extends z.ZodType>({
  handle,
  ...route
}: RouteDefinition<P, Q, R>): Route {
  const respond = async (context: Context): Promise<Response> => {
    const request = {
      parameters: validated(route.parameters, context.req.param()),
      query: validated(route.query, singleValues(context.req.queries())),
    };
    context.header("Cache-Control", "no-store");
    return context.json(await handle(request));
  };
  return {
    ...route,
    mount: (app) => void app.on(route.method, route.path.replace(/\{(\w+)\}/g, ":$1"), respond),
  };
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
