/** SQL of what waits, by the queue's own indexes, of the table `t`. */

/** Marked as due. */
export const isDue = "t.ready";

/** Those in the order of their index: few of many are read from it, whatever the planner believes of their number. */
export const dueOrder = "t.hash, greatest(t.max, 0) DESC, t.id";

/** Not marked as due. That few rows fit, since most are null, the planner sees by IS FALSE. */
export const isLater = "NOT t.ready AND t.ready IS FALSE";
