/** In the order of the enum. Web pages use this module too. */
export const taskStates = ["PLAN", "TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"] as const;

/** A state of a task. */
export type TaskState = (typeof taskStates)[number];

/** A task in a final state does not run again unless a user changes its state. */
export const finalStates = ["DONE", "FAIL", "GONE", "STOP"] as const satisfies readonly TaskState[];

/** A state in which a task has ended. */
export type FinalState = (typeof finalStates)[number];

/** The changes that can be made to many tasks at once, each with the states of tasks to which it can be made. */
export const changeableStates = {
  stop: ["PLAN", "TAKE", "WORK"],
  retry: finalStates,
  "run-now": ["PLAN"],
  delete: ["PLAN", ...finalStates],
} as const satisfies Readonly<Record<string, readonly TaskState[]>>;

export type StateChange = keyof typeof changeableStates;

export const isTaskState = (text: unknown): text is TaskState => taskStates.some((state) => state === text);

export const isFinalState = (text: unknown): text is FinalState => finalStates.some((state) => state === text);
