/** SQL: whether the state of a row `t` is one that the task itself has set while it runs, as `ready` marks it. */
export const setByTask = "t.pid < 0";
