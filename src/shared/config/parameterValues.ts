import { fileParameters } from "./parameters.js";
import type { Parameter, FileParameters } from "./parameterTable.js";
import { omitUndefined } from "../omitUndefined.js";
import { parseSize } from "./sizeText.js";

type Raw = Readonly<Record<string, unknown>>;

/** Returns the defaults of the file's parameters. */
export function defaultParameters(): FileParameters {
  return Object.assign({}, ...collect(({ default: value }) => value));
}

/** Returns the parameters given in a file or an entry, with aliases replaced by names. */
export function givenParameters(raw: Raw): Partial<FileParameters> {
  const given = collect(({ name, alias }) => raw[name] ?? (alias === undefined ? undefined : raw[alias]));
  return Object.assign({}, ...given);
}

/** Returns one message for each parameter that is given both by name and by alias. */
export function aliasProblems(raw: Raw): string[] {
  return fileParameters().flatMap(({ name, alias }) =>
    alias !== undefined && raw[name] !== undefined && raw[alias] !== undefined
      ? [`expected one of "${name}" and "${alias}", which are the same, got both`]
      : [],
  );
}

function collect(valueOf: (parameter: Parameter) => unknown): object[] {
  return fileParameters().map((parameter) => {
    const value = valueOf(parameter);
    const isText = parameter.type === "size" && typeof value === "string";
    return omitUndefined({ [parameter.name]: isText ? parseSize(value) : value });
  });
}
