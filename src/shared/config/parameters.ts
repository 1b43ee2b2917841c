import { parameters, type FileParameters, type Parameter } from "./parameterTable.js";

const all: readonly Parameter[] = parameters;

type NamedParameter = Parameter & { readonly name: keyof FileParameters };

/** Finds a parameter by name or alias. */
export function findParameter(name: string): Parameter | undefined {
  return all.find((parameter) => parameter.name === name || parameter.alias === name);
}

/** Returns the parameters that a file can set, except `pg_task.json`. */
export function fileParameters(): NamedParameter[] {
  return all.filter(
    (parameter): parameter is NamedParameter => parameter.levels.includes("file") && parameter.type !== "json",
  );
}

/** The parameters whose values must never be shown. */
export const secretParameters = [
  "pg_http.token",
  "pg_http.readonly",
] as const satisfies readonly (keyof FileParameters)[];

/** Parameters of pg_task that concern the file's entries and not their tables. */
const fileOnly: ReadonlySet<string> = new Set<keyof FileParameters>([
  "pg_task.create",
  "pg_task.data",
  "pg_task.default",
  "pg_task.user",
]);

/** Returns the parameters that an entry can set as defaults of its table. */
export function entryParameters(): NamedParameter[] {
  return fileParameters().filter(({ name }) => name.startsWith("pg_task.") && !fileOnly.has(name));
}

/** Returns the parameters that `ALTER DATABASE` and `ALTER ROLE` can set for an entry. */
export function serverParameters(): Parameter[] {
  return all.filter(({ name, levels }) => levels.includes("database") && !name.startsWith("pg_conf."));
}
