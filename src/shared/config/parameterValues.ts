import { fileParameters } from "./parameters.js";
import type { Parameter, FileParameters } from "./parameterTable.js";
import { parseSize } from "./sizeText.js";

type Raw = Readonly<Record<string, unknown>>;

/** The file's parameters by name and by alias. */
const parametersByKey: ReadonlyMap<string, Parameter> = new Map(
  fileParameters().flatMap((parameter) =>
    [parameter.name, parameter.alias].flatMap((key) => (key === undefined ? [] : [[key, parameter] as const])),
  ),
);

const aliases = fileParameters().flatMap(({ name, alias }) => (alias === undefined ? [] : [{ name, alias }]));

/** Returns the defaults of the file's parameters. */
export function defaultParameters(): FileParameters {
  return Object.assign({}, ...fileParameters().map((each) => ({ [each.name]: valueOf(each, each.default) })));
}

/**
 * Returns the parameters given in a file or an entry, with aliases replaced by names. A file can have very many entries,
 * so this looks at what is given, and not at every parameter.
 */
export function givenParameters(raw: Raw): Partial<FileParameters> {
  const given: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(raw)) {
    const parameter = parametersByKey.get(key);
    if (parameter !== undefined && value !== undefined) given[parameter.name] = valueOf(parameter, value);
  }
  return given;
}

/** Returns one message for each parameter that is given both by name and by alias. */
export function aliasProblems(raw: Raw): string[] {
  return aliases.flatMap(({ name, alias }) =>
    raw[name] !== undefined && raw[alias] !== undefined
      ? [`expected one of "${name}" and "${alias}", which are the same, got both`]
      : [],
  );
}

const valueOf = ({ type }: Parameter, value: unknown): unknown =>
  type === "size" && typeof value === "string" ? parseSize(value) : value;
