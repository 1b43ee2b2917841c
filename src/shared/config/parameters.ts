import { parameters, type FileParameters, type Parameter, type ParameterOfType } from "./parameterTable.js";
import { parseSize } from "./sizeText.js";

type NamedParameter = Parameter & { readonly name: keyof FileParameters };

export const fileParameters = parameters.filter(
  (parameter): parameter is NamedParameter => parameter.levels.includes("file") && parameter.type !== "json",
);

const byKey: ReadonlyMap<string, Parameter> = new Map(
  parameters.flatMap((parameter) => keysOf(parameter).map((key) => [key, parameter] as const)),
);

export function keysOf({ name, alias }: Parameter): string[] {
  return alias === undefined ? [name] : [name, alias];
}

export const findParameter = (name: string): Parameter | undefined => byKey.get(name);

const namesOfType = <const Type extends Parameter["type"]>(type: Type): readonly ParameterOfType<Type>[] =>
  parameters
    .filter((parameter): parameter is Parameter & { name: ParameterOfType<Type> } => parameter.type === type)
    .map(({ name }) => name);

export const secretParameters = namesOfType("secret");

/** A column default takes these characters from the server's settings. */
export const characterParameters: readonly string[] = namesOfType("char");

export const entryParameters = fileParameters.filter(
  ({ name, supervisorOnly }) => name.startsWith("pg_task.") && supervisorOnly !== true,
);

export const serverParameters = parameters.filter(
  ({ name, levels }) => levels.includes("database") && !name.startsWith("pg_conf."),
);

export function defaultParameters(): FileParameters {
  return Object.assign({}, ...fileParameters.map((each) => ({ [each.name]: valueOf(each, each.default) })));
}

type Raw = Readonly<Record<string, unknown>>;

/** Replaces aliases by names. A file can have very many entries, so this looks only at what is given. */
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

export function aliasProblems(raw: Raw): string[] {
  return fileParameters.flatMap(({ name, alias }) =>
    alias !== undefined && raw[name] !== undefined && raw[alias] !== undefined
      ? [`expected one of "${name}" and "${alias}", which are the same, got both`]
      : [],
  );
}

const valueOf = ({ type }: Parameter, value: unknown): unknown =>
  type === "size" && typeof value === "string" ? parseSize(value) : value;
