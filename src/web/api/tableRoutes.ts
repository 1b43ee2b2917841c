import type { z } from "zod";
import type { WebTable } from "../data/webTable.js";
import type { WebTables } from "../data/webTables.js";
import { defineRoute, type Answered, type Request, type Route } from "./route.js";

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
