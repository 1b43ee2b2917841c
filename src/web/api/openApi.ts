import { z } from "zod";
import { problemStatus } from "../errors.js";
import type { Route } from "./route.js";
import { models, problemSchema } from "./schemas.js";

/** The OpenAPI document of these routes, whose paths begin with `base`. */
export function openApi(
  routes: readonly Route[],
  options: { readonly base: string; readonly version: string },
): object {
  const { schemas } = z.toJSONSchema(models, {
    uri: (id) => `#/components/schemas/${id}`,
    unrepresentable: "any",
  });
  return {
    openapi: "3.1.0",
    info: {
      title: "pg-task",
      version: options.version,
      description: "Tasks of the configured tables, and what can be done with them.",
    },
    security: [{ token: [] }],
    paths: { ...paths(routes, options.base), [`${options.base}/events`]: { get: events } },
    components: {
      securitySchemes: { token: { type: "http", scheme: "bearer" } },
      schemas: Object.fromEntries(
        Object.entries(schemas).map(([name, schema]) => [name, withoutMeta(schema)]),
      ),
    },
  };
}

const json = (schema: z.ZodType): object => ({
  "application/json": {
    schema: { $ref: `#/components/schemas/${models.get(schema)?.id}` },
  },
});

/** What is no question with an answer. */
const events = {
  operationId: "get-events",
  summary:
    "server-sent events: changed, with the id of a table whose rows were written; live, with whether a table's changes are heard of; cluster",
  parameters: [
    {
      name: "table",
      in: "query",
      required: false,
      description: "only of this table",
      schema: { type: "string" },
    },
  ],
  responses: {
    200: {
      description: "events until somebody ends it",
      content: { "text/event-stream": { schema: { type: "string" } } },
    },
    400: { description: "INVALID", content: json(problemSchema) },
    401: { description: "UNAUTHORIZED", content: json(problemSchema) },
    403: { description: "FORBIDDEN", content: json(problemSchema) },
    404: { description: "NOT_FOUND", content: json(problemSchema) },
  },
};

function paths(routes: readonly Route[], base: string): Record<string, object> {
  const found: Record<string, Record<string, object>> = {};
  for (const route of routes) {
    (found[`${base}${route.path}`] ??= {})[route.method] = operation(route);
  }
  return found;
}

function operation(route: Route): object {
  const id = route.path.split("/").filter((part) => part !== "" && !part.startsWith("{"));
  return {
    operationId: [route.method, ...id].join("-"),
    summary: route.summary,
    parameters: [...parameters(route.parameters, "path"), ...parameters(route.query, "query")],
    responses: {
      200: { description: "the answer", content: json(route.answer) },
      ...Object.fromEntries(
        [...new Set(Object.values(problemStatus))].map((status) => [
          status,
          { description: refusal(status), content: json(problemSchema) },
        ]),
      ),
    },
  };
}

const refusal = (status: number): string =>
  Object.entries(problemStatus)
    .filter(([, each]) => each === status)
    .map(([code]) => code)
    .join(", ");

function parameters(schema: z.ZodObject, place: "path" | "query"): object[] {
  const { properties = {}, required = [] } = z.toJSONSchema(schema, {
    io: "input",
    unrepresentable: "any",
  });
  return Object.entries(properties).map(([name, property]) => ({
    name,
    in: place,
    required: required.includes(name),
    schema: property,
  }));
}

function withoutMeta(schema: object): object {
  return Object.fromEntries(Object.entries(schema).filter(([key]) => !/^\$(schema|id)$/.test(key)));
}
