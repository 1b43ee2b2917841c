import { sqlstatePattern } from "../../../shared/parseSqlstates.js";
import { literal } from "../../../shared/postgres/quoting.js";
import type { OptionCheck } from "./optionCheck.js";

/**
 * Checks the columns that say whether a task is retried. `retry` and `backoff` have a default that sessions, roles and
 * databases can set, so the condition is true only for values that are refused.
 */
export const retryCheck: OptionCheck = {
  watched: ["retry", "backoff", "sqlstate"],
  isUsed: "NEW.retry < 0 OR NEW.backoff <= interval '0' OR NEW.sqlstate IS NOT NULL",
  variables: ["bad_sqlstate text"],
  body: `
  IF NEW.retry < 0 THEN
    RAISE EXCEPTION 'retry must be 0 or more, not %', NEW.retry USING ERRCODE = 'invalid_parameter_value';
  ELSIF NEW.backoff <= interval '0' THEN
    RAISE EXCEPTION 'backoff must be more than 0, not %', NEW.backoff USING ERRCODE = 'invalid_parameter_value';
  ELSIF NEW.sqlstate IS NOT NULL THEN
    SELECT coalesce(s.entry, 'null') INTO bad_sqlstate FROM unnest(NEW.sqlstate) AS s(entry)
    WHERE s.entry !~ ${literal(sqlstatePattern.source)} OR s.entry IS NULL LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION '"%" in sqlstate is neither an SQLSTATE nor a class', bad_sqlstate USING ERRCODE = 'invalid_parameter_value',
        HINT = 'An SQLSTATE has five digits or capital letters, as in 40P01, and a class has two, as in 40. With ! in front, it is not retried.';
    END IF;
  END IF;`,
};
