import { notifyManager } from "./notify.js";
import { refuse, type OptionCheck } from "./optionCheck.js";

/** Longest gap. A longer one, such as infinity, would keep its group from ever starting another task. */
const maxGap = "interval '1000 years'";

/**
 * Checks the column `gap`. A new row fires the trigger only if the value is wrong, because `pg_task.gap` may give every
 * row of a database a gap. If a waiting row gets another gap, the manager is notified, because the task may be allowed
 * to start earlier now. The trigger that wakes the manager fires only for an UPDATE OF plan or state.
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
