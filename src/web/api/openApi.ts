import { z } from "zod";
import { statusByCode } from "../errors.js";
import type { Route } from "./route.js";
import { models, problemSchema } from "./model.js";

/** The path of the API. */
const base = "/api";

export function createOpenApi(routes: readonly Route[], version: string): object {
  const { schemas } = z.toJSONSchema(models, {
    uri: (id) => `#/components/schemas/${id}`,
    unrepresentable: "any",
  });
  return {
    openapi: "3.1.0",
    info: {
      title: "pg-task",
      version,
      description: "Reads and changes the tasks of the configured tables.",
    },
    servers: [{ url: "/" }],
    security: [{ token: [] }],
    paths: { ...paths(routes), [`${base}/events`]: { get: eventsOperation } },
    components: {
      securitySchemes: { token: { type: "http", scheme: "bearer" } },
      schemas: Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, withoutMeta(schema)])),
    },
  };
}

const reference = (schema: z.ZodType): object => ({
  schema: { $ref: `#/components/schemas/${models.get(schema)?.id}` },
});

const jsonContent = (schema: z.ZodType): object => ({ "application/json": reference(schema) });
const problemContent = { "application/problem+json": reference(problemSchema) };

/** Not a `Route`, because its response is not JSON. */
const eventsOperation = {
  operationId: "get-events",
  summary:
    "server-sent events: `changed` when rows of a table were written, `live` when its change feed connects or is lost, `cluster` when the role or a manager's state changes",
  parameters: [
    {
      name: "table",
      in: "query",
      required: false,
      description: "only events of this table; default: all tables",
      schema: { type: "string" },
    },
  ],
  responses: {
    200: {
      description: "a stream of events",
      content: { "text/event-stream": { schema: { type: "string" } } },
    },
    ...problems([400, 401, 403, 404]),
  },
};

function paths(routes: readonly Route[]): Record<string, object> {
  const result: Record<string, Record<string, object>> = {};
  for (const route of routes) {
    (result[`${base}${route.path}`] ??= {})[route.method] = operation(route);
  }
  return result;
}

function operation(route: Route): object {
  const segments = route.path.split("/").filter((part) => part !== "");
  return {
    operationId: [route.method, ...segments].join("-").replaceAll(/[{}]/g, ""),
    summary: route.summary,
    parameters: [...parameters(route.parameters, "path"), ...parameters(route.query, "query")],
    ...(route.body === undefined ? {} : { requestBody: { required: true, content: jsonContent(route.body) } }),
    responses: {
      [route.status ?? 200]: { description: "success", content: jsonContent(route.response) },
      ...problems(Object.values(statusByCode).filter((status) => status !== 405)),
    },
  };
}

function problems(statuses: readonly number[]): Record<string, object> {
  return Object.fromEntries(
    statuses.map((status) => [status, { description: codesOf(status).join(", "), content: problemContent }]),
  );
}

function codesOf(status: number): string[] {
  return Object.entries(statusByCode).flatMap(([code, each]) => (each === status ? [code] : []));
}

function parameters(schema: z.ZodObject, location: "path" | "query"): object[] {
  const { properties = {}, required = [] } = z.toJSONSchema(schema, {
    io: "input",
    unrepresentable: "any",
  });
  return Object.entries(properties).map(([name, property]) => ({
    name,
    in: location,
    required: required.includes(name),
    schema: property,
  }));
}

function withoutMeta(schema: object): object {
  return Object.fromEntries(Object.entries(schema).filter(([key]) => !/^\$(schema|id)$/.test(key)));
}
