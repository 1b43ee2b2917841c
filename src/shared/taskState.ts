/** All states of a task. The enum of the column `state` lists them in the same order. Web pages use this module too. */
export const taskStates = ["PLAN", "TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"] as const;

export type TaskState = (typeof taskStates)[number];

/** The final states. A task in a final state does not run again unless a user changes its state. */
export const finalStates = ["DONE", "FAIL", "GONE", "STOP"] as const satisfies readonly TaskState[];
