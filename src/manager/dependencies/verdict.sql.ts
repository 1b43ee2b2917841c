import type { TaskTable } from "../schema/taskTable.js";

/**
 * What happens to a task that waits for others:
 * - `wait`: it waits on.
 * - `start`: all of them have ended as it wants, so it becomes a planned task like any other.
 * - `refuse`: one of them has ended otherwise, so it becomes GONE, and its error names that task.
 * - `omit`: it waited for a failure, and there was none, so it becomes GONE without error.
 */
export type Verdict = "wait" | "start" | "refuse" | "omit";

/** States of tasks that have not ended. A task with an owner has not ended either, whatever its state was set to. */
export const activeStates = "('PLAN', 'TAKE', 'WORK')";

/** SQL: whether the row `t`, which has ended, might be pruned before those that wait for it have read its output. */
export const isUnread = "t.keep > interval '0' AND t.output IS NOT NULL AS unread";

/**
 * @param of.upon SQL of the column `upon`
 * @param of.open SQL condition: a predecessor has not ended
 * @param of.failed SQL condition: a predecessor has ended, but not as DONE
 */
export const verdictSql = ({
  upon,
  open,
  failed,
}: Readonly<Record<"upon" | "open" | "failed", string>>): string => `CASE ${upon}
      WHEN 'end' THEN CASE WHEN ${open} THEN 'wait' ELSE 'start' END
      WHEN 'fail' THEN CASE WHEN ${open} THEN 'wait' WHEN ${failed} THEN 'start' ELSE 'omit' END
      ELSE CASE WHEN ${failed} THEN 'refuse' WHEN ${open} THEN 'wait' ELSE 'start' END END`;

/**
 * SQL of the SET list that applies the verdict `c.verdict` to the waiting row `t`. `due` holds the time for which the
 * user has planned the task. A schedule goes on from that time, even if the task starts later. The time that a chain
 * has begun to take goes on.
 */
export const applyVerdict = ({ stateType, qualified }: TaskTable): string => {
  const gone = "c.verdict IN ('refuse', 'omit')";
  return `
    state = CASE WHEN ${gone} THEN 'GONE' ELSE t.state::text END::${stateType},
    plan = CASE WHEN c.verdict = 'start' THEN greatest(t.due, now()) WHEN ${gone} THEN t.due ELSE t.plan END,
    due = CASE WHEN c.verdict = 'start' AND t.due >= now() OR ${gone} THEN NULL ELSE t.due END,
    deadline = CASE WHEN c.verdict = 'start' AND t.within IS NOT NULL
      THEN (SELECT min(coalesce(p.deadline, p.start + p.within)) FROM ${qualified} AS p WHERE p.id = ANY (t.after)) ELSE t.deadline END,
    ready = CASE WHEN c.verdict = 'start' THEN t.due <= now() WHEN ${gone} THEN NULL ELSE t.ready END,
    start = CASE WHEN ${gone} THEN now() ELSE t.start END, stop = CASE WHEN ${gone} THEN now() ELSE t.stop END,
    error = CASE WHEN ${gone} THEN c.error ELSE t.error END`;
};

/** SQL of the error of a task that is refused because of the predecessor `id`, which has ended in `state`. */
export const refusal = (id: string, state: string): string =>
  `concat('ERROR:  task ', ${id}, ', which it waits for, is ', ${state})`;
