import { parameters, type FileParameters, type Parameter, type ParameterOfType } from "./parameterTable.js";
import { parseSize } from "./sizeText.js";

type NamedParameter = Parameter & { readonly name: keyof FileParameters };

/** The parameters that a file can set, except `pg_task.json`. */
export const fileParameters = parameters.filter(
  (parameter): parameter is NamedParameter => parameter.levels.includes("file") && parameter.type !== "json",
);

const byKey: ReadonlyMap<string, Parameter> = new Map(
  parameters.flatMap((parameter) => keysOf(parameter).map((key) => [key, parameter] as const)),
);

/** Returns the names under which a parameter can be given. */
export function keysOf({ name, alias }: Parameter): string[] {
  return alias === undefined ? [name] : [name, alias];
}

/** Finds a parameter by name or alias. */
export const findParameter = (name: string): Parameter | undefined => byKey.get(name);

const namesOfType = <const Type extends Parameter["type"]>(type: Type): readonly ParameterOfType<Type>[] =>
  parameters
    .filter((parameter): parameter is Parameter & { name: ParameterOfType<Type> } => parameter.type === type)
    .map(({ name }) => name);

/** The parameters whose values must never be shown. */
export const secretParameters = namesOfType("secret");

/** The parameters whose value is one character, which a column default takes from the server's setting. */
export const characterParameters: readonly string[] = namesOfType("char");

/** The parameters that an entry can set as defaults of its table. */
export const entryParameters = fileParameters.filter(
  ({ name, supervisorOnly }) => name.startsWith("pg_task.") && supervisorOnly !== true,
);

/** The parameters that `ALTER DATABASE` and `ALTER ROLE` can set for an entry. */
export const serverParameters = parameters.filter(
  ({ name, levels }) => levels.includes("database") && !name.startsWith("pg_conf."),
);

/** Returns the defaults of the file's parameters. */
export function defaultParameters(): FileParameters {
  return Object.assign({}, ...fileParameters.map((each) => ({ [each.name]: valueOf(each, each.default) })));
}

type Raw = Readonly<Record<string, unknown>>;

/**
 * Returns the parameters given in a file or an entry, with aliases replaced by names. A file can have very many entries,
 * so this looks at what is given, and not at every parameter.
 */
export function givenParameters(raw: Raw): Partial<FileParameters> {
  const given: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(raw)) {
    const parameter = byKey.get(key);
    if (parameter !== undefined && parameter.type !== "json" && value !== undefined) {
      given[parameter.name] = valueOf(parameter, value);
    }
  }
  return given;
}

/** Returns one message for each parameter that is given both by name and by alias. */
export function aliasProblems(raw: Raw): string[] {
  return fileParameters.flatMap(({ name, alias }) =>
    alias !== undefined && raw[name] !== undefined && raw[alias] !== undefined
      ? [`expected one of "${name}" and "${alias}", which are the same, got both`]
      : [],
  );
}

const valueOf = ({ type }: Parameter, value: unknown): unknown =>
  type === "size" && typeof value === "string" ? parseSize(value) : value;
