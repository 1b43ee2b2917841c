import { literal } from "../../../shared/postgres/quoting.js";
import type { TaskTable } from "../taskTable.js";
import { notifyManager, type OptionCheck } from "./optionCheck.js";

/**
 * Finds the chain of a task that is to run alone: that of the tasks for which it waits or, if it can start at once, that
 * of the task that inserts it. The successors that the manager inserts begin chains of their own.
 */
export const aloneCheck = ({ qualified, usersOwner }: TaskTable): OptionCheck => ({
  watched: ["alone", "after"],
  isUsed: "NEW.alone IS NOT NULL",
  wasUsed: "OLD.alone IS NOT NULL",
  body: `
  IF NEW.alone NOT IN ('group', 'table') THEN
    RAISE EXCEPTION 'alone must be group or table, not "%"', NEW.alone USING ERRCODE = 'invalid_parameter_value';
  ${usersOwner === null ? "" : refuseStrangers(usersOwner)}END IF;
  IF NEW.alone IS NULL THEN
    NEW.turn := NULL;
  ELSIF TG_OP = 'INSERT' OR OLD.alone IS DISTINCT FROM NEW.alone OR OLD.after IS DISTINCT FROM NEW.after THEN
    NEW.turn := (SELECT coalesce(t.turn, t.id) FROM ${qualified} AS t
      WHERE t.id = ANY (CASE WHEN NEW.after IS NOT NULL THEN NEW.after
          WHEN NEW.parent::text = current_setting('pg_task.id', true) AND NEW.plan <= clock_timestamp() THEN ARRAY[NEW.parent] END)
        AND t.id <> NEW.id AND t.alone = NEW.alone AND (t.alone = 'table' OR t."group" = NEW."group")
      ORDER BY t.id DESC LIMIT 1);
  END IF;
  IF TG_OP = 'UPDATE' THEN
    ${notifyManager};
  END IF;`,
});

/** With users, the tasks of others would wait for one that they cannot see. */
const refuseStrangers = (owner: string): string => `ELSIF NEW.alone IS NOT NULL AND NEW.role <> ${literal(owner)} THEN
    RAISE EXCEPTION 'only tasks of role % can run alone, not those of %', ${literal(owner)}, NEW.role USING ERRCODE = 'insufficient_privilege';
  `;
