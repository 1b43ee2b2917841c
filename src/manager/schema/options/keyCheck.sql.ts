import { refuse, type OptionCheck } from "./optionCheck.js";

/** Maximum length of a key, in bytes. An index entry can take about 2,700 bytes. */
const maxKeyBytes = 2000;

/** Checks the column `key`. */
export const keyCheck: OptionCheck = {
  watched: ["key"],
  isUsed: "NEW.key IS NOT NULL",
  body: `
  IF NEW.key = '' THEN
    ${refuse("key is empty", { hint: "A task without a key has the key null." })}
  ELSIF octet_length(NEW.key) > ${maxKeyBytes} THEN
    RAISE EXCEPTION 'key has % bytes, at most ${maxKeyBytes} are allowed', octet_length(NEW.key)
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Use a hash of it, such as md5().';
  END IF;`,
};

/**
 * Refuses keys in a table that cannot have the index of keys.
 *
 * @param reason why the table has no index
 */
export function refusedKeyCheck(reason: string): OptionCheck {
  return {
    watched: ["key"],
    isUsed: "NEW.key IS NOT NULL",
    body: `
  IF NEW.key IS NOT NULL THEN
    RAISE EXCEPTION 'key cannot be used: ${reason}' USING ERRCODE = 'feature_not_supported';
  END IF;`,
  };
}
