import { fileParameters, type Parameter } from "./parameters.js";
import { omitUndefined } from "../omitUndefined.js";
import { parseSize } from "./sizeText.js";
import type { FileParameters } from "./types.js";

type Raw = Readonly<Record<string, unknown>>;

/** The values of the file's parameters when nobody gives any. */
export function defaultParameters(): FileParameters {
  return Object.assign({}, ...collect(({ default: value }) => value));
}

/** The parameters that are given in a file or an entry, by their own names. */
export function givenParameters(raw: Raw): Partial<FileParameters> {
  const given = collect(
    ({ name, alias }) => raw[name] ?? (alias === undefined ? undefined : raw[alias]),
  );
  return Object.assign({}, ...given);
}

/** Says which parameters are given twice, under their name and their alias. */
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
