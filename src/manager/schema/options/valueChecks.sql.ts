import { sqlstatePattern } from "../../../shared/parseSqlstates.js";
import { literal } from "../../../shared/postgres/quoting.js";
import { maxNameBytes } from "../taskTable.js";
import { notifyManager, refuse, type OptionCheck } from "./optionCheck.js";

export const maxArgsBytes = 1 << 20;

const maxValues = 65_535;

/** An index entry can take about 2,700 bytes. */
const maxKeyBytes = 2000;

/** Longest gap and time limit. Longer ones, such as infinity, are no such thing, and times could exceed the range of dates. */
const maxGap = "interval '1000 years'";

/** `retry` and `backoff` have defaults, so the condition is true only for values that are refused. */
export const retryCheck: OptionCheck = {
  watched: ["retry", "backoff", "sqlstate"],
  isUsed: "NEW.retry < 0 OR NEW.backoff <= interval '0' OR NEW.sqlstate IS NOT NULL",
  variables: ["bad_sqlstate text"],
  body: `
  IF NEW.retry < 0 THEN
    ${refuse("retry must be 0 or more, not %", { value: "NEW.retry" })}
  ELSIF NEW.backoff <= interval '0' THEN
    ${refuse("backoff must be more than 0, not %", { value: "NEW.backoff" })}
  ELSIF NEW.sqlstate IS NOT NULL THEN
    SELECT coalesce(s.entry, 'null') INTO bad_sqlstate FROM unnest(NEW.sqlstate) AS s(entry)
    WHERE s.entry !~ ${literal(sqlstatePattern.source)} OR s.entry IS NULL LIMIT 1;
    IF FOUND THEN
      ${refuse('"%" in sqlstate is neither an SQLSTATE nor a class', {
        value: "bad_sqlstate",
        hint: "An SQLSTATE has five digits or capital letters, as in 40P01, and a class has two, as in 40. With ! in front, it is not retried.",
      })}
    END IF;
  END IF;`,
};

export const keyCheck: OptionCheck = {
  watched: ["key"],
  isUsed: "NEW.key IS NOT NULL",
  body: `
  IF NEW.key = '' THEN
    ${refuse("key is empty", { hint: "A task without a key has the key null." })}
  ELSIF octet_length(NEW.key) > ${maxKeyBytes} THEN
    ${refuse(`key has % bytes, at most ${maxKeyBytes} are allowed`, { value: "octet_length(NEW.key)", hint: "Use a hash of it, such as md5()." })}
  END IF;`,
};

/** For a table that cannot have the index of keys. The reason says why. */
export const refusedKeyCheck = (reason: string): OptionCheck => ({
  watched: ["key"],
  isUsed: "NEW.key IS NOT NULL",
  body: `
  IF NEW.key IS NOT NULL THEN
    RAISE EXCEPTION 'key cannot be used: ${reason}' USING ERRCODE = 'feature_not_supported';
  END IF;`,
});

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

/**
 * New rows are checked only if the value is wrong, because `pg_task.gap` may give every row a gap. A new gap of a
 * waiting row may let it start earlier, but the trigger that wakes the manager fires only for an UPDATE OF plan or
 * state.
 */
export const gapCheck: OptionCheck = {
  watched: ["gap"],
  isUsed: `NEW.gap NOT BETWEEN interval '0' AND ${maxGap}`,
  wasUsed: "OLD.gap IS DISTINCT FROM NEW.gap",
  body: `
  IF NEW.gap < interval '0' THEN
    ${refuse("gap must be 0 or more")}
  ELSIF NEW.gap > ${maxGap} THEN
    ${refuse("gap must be at most 1000 years")}
  ELSIF TG_OP = 'UPDATE' AND OLD.gap IS DISTINCT FROM NEW.gap THEN
    ${notifyManager};
  END IF;`,
};

export const suspendCheck: OptionCheck = {
  watched: ["suspend"],
  isUsed: "NEW.suspend < 0",
  body: `
  IF NEW.suspend < 0 THEN
    ${refuse("suspend must be 0 or more, not %", { value: "NEW.suspend" })}
  END IF;`,
};

/** NOTIFY accepts no other names, and a result could not be written. */
export const tellCheck: OptionCheck = {
  watched: ["tell"],
  isUsed: `NEW.tell = '' OR octet_length(NEW.tell) > ${maxNameBytes}`,
  body: `
  IF NEW.tell = '' THEN
    ${refuse("tell is empty", { hint: "A task that tells nobody has tell null." })}
  ELSIF octet_length(NEW.tell) > ${maxNameBytes} THEN
    ${refuse(`tell has % bytes, at most ${maxNameBytes} are allowed`, { value: "octet_length(NEW.tell)" })}
  END IF;`,
};

/** A task that a user runs again has all its time. As a step of a chain whose time is over, it could not run at all. */
export const withinCheck: OptionCheck = {
  watched: ["within", "plan"],
  isUsed: `NEW.within <= interval '0' OR NEW.within > ${maxGap}`,
  wasUsed: "OLD.within IS NOT NULL",
  body: `
  IF NEW.within <= interval '0' THEN
    ${refuse("within must be more than 0, not %", { value: "NEW.within" })}
  ELSIF NEW.within > ${maxGap} THEN
    ${refuse("within must be at most 1000 years")}
  ELSIF TG_OP = 'UPDATE' AND OLD.state::text <> ALL (ARRAY['PLAN', 'TAKE', 'WORK']) AND NEW.state::text = 'PLAN' THEN
    NEW.deadline := NULL;
    NEW.within := CASE WHEN NEW.after IS NULL THEN NEW.within END;
  END IF;`,
};

/** For a table without users. */
export const roleCheck: OptionCheck = {
  watched: ["role"],
  isUsed: "NEW.role IS NOT NULL",
  body: `
  IF NEW.role IS NOT NULL THEN
    RAISE EXCEPTION 'the tasks of this table all run as its owner, not as %', NEW.role USING ERRCODE = 'feature_not_supported',
      HINT = 'With "users": true in the entry of pg_task.json, each task runs as the role that wrote it.';
  END IF;`,
};
