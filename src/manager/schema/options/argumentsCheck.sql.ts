import { refuse, type OptionCheck } from "./optionCheck.js";

/** Largest size of `args` as text, in bytes. */
export const maxArgsBytes = 1 << 20;

/** A statement can have at most this many parameters. */
const maxValues = 65_535;

/** Checks the values for the input. */
export const argumentsCheck: OptionCheck = {
  watched: ["args"],
  isUsed: "NEW.args IS NOT NULL",
  body: `
  IF NEW.args IS NOT NULL THEN
    IF jsonb_typeof(NEW.args) NOT IN ('array', 'object') THEN
      ${refuse("args must be an array or an object")}
    ELSIF octet_length(NEW.args::text) > ${maxArgsBytes} THEN
      ${refuse("args is larger than 1 MB")}
    ELSIF jsonb_typeof(NEW.args) = 'array' AND jsonb_array_length(NEW.args) > ${maxValues} THEN
      ${refuse(`args has more than ${maxValues} values`)}
    END IF;
  END IF;`,
};
