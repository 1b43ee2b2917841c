import type { Context, Hono } from "hono";
import type { z } from "zod";
import { WebProblem } from "../errors.js";

/** One of the API's requests: what it takes, what it answers, and how. */
export interface Route {
  readonly method: "get" | "post";
  /** As in OpenAPI: `/tables/{table}`. */
  readonly path: string;
  readonly summary: string;
  readonly parameters: z.ZodObject;
  readonly query: z.ZodObject;
  readonly answer: z.ZodType;
  readonly mount: (app: Hono) => void;
}

interface RouteWords<P extends z.ZodObject, Q extends z.ZodObject, A extends z.ZodType> {
  readonly method: "get" | "post";
  readonly path: string;
  readonly summary: string;
  readonly parameters: P;
  readonly query: Q;
  readonly answer: A;
  readonly handle: (request: {
    readonly parameters: z.output<P>;
    readonly query: z.output<Q>;
  }) => Promise<z.output<A>>;
}

/** A route from its words; what it is asked is checked before it is handled. */
export function route<P extends z.ZodObject, Q extends z.ZodObject, A extends z.ZodType>(
  words: RouteWords<P, Q, A>,
): Route {
  const { method, path, parameters, query, handle } = words;
  const answer = async (context: Context): Promise<Response> => {
    const asked = {
      parameters: checked(parameters, context.req.param()),
      query: checked(query, context.req.query()),
    };
    context.header("Cache-Control", "no-store");
    return context.json(await handle(asked));
  };
  return {
    ...words,
    mount: (app) => void app.on(method, path.replace(/\{(\w+)\}/g, ":$1"), answer),
  };
}

/** @throws WebProblem INVALID with one line for each thing that is wrong */
function checked<T extends z.ZodObject>(
  schema: T,
  given: Readonly<Record<string, string>>,
): z.output<T> {
  const { data, error } = schema.safeParse(given);
  if (error === undefined) return data;
  const lines = error.issues.flatMap((issue) => {
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => `${key}: there is no such parameter`);
    }
    const name = issue.path.join(".");
    return [`${name}: ${issue.message}, got ${JSON.stringify(given[name])}`];
  });
  throw new WebProblem("INVALID", [...new Set(lines)].join("\n"));
}
