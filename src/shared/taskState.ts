/** In the order of the enum. Web pages use this module too. */
export const taskStates = ["PLAN", "TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"] as const;

/** A state of a task. */
export type TaskState = (typeof taskStates)[number];

/** A task in a final state does not run again unless a user changes its state. */
export const finalStates = ["DONE", "FAIL", "GONE", "STOP"] as const satisfies readonly TaskState[];

/** A state in which a task has ended. */
export type FinalState = (typeof finalStates)[number];

export const isTaskState = (text: unknown): text is TaskState => taskStates.some((state) => state === text);

export const isFinalState = (text: unknown): text is FinalState => finalStates.some((state) => state === text);
