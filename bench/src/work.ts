/**
 * How tasks wait for each other. The tasks are divided into sets of `size` tasks with consecutive numbers.
 *
 * - Chain: each task waits for the one before it.
 * - Fan-out: all tasks but the first wait for the first.
 * - Fan-in: the last task waits for all others.
 */
export interface Shape {
  readonly kind: "chain" | "fan-out" | "fan-in";
  readonly size: number;
}

/** In the input of tasks with `tries`, this word stands for the number of the tries before. */
export const triesBefore = "TRIES_BEFORE";

/** A kind of task and how the tasks are grouped. */
export interface Work {
  readonly name: string;
  readonly title: string;
  /** SQL expression that yields a task's input. `n` is the task's number. */
  readonly input: string;
  /**
   * Number of groups. With one group, all tasks may run at once, unless `serial` is true. With more groups, the tasks
   * of each group run one after another.
   */
  readonly groups: number;
  /** Whether all tasks are in one group and run one after another. */
  readonly serial: boolean;
  /** SQL expression that yields a task's key. `n` is the task's number. Without it, the tasks have no keys. */
  readonly key?: string;
  /** How often a task is tried at most. If set, its input has to fail the first time. */
  readonly tries?: number;
  readonly shape?: Shape;
  /** Whether each task writes its number into the table `sink`. */
  readonly writes: boolean;
  /** The fraction of the usual number of tasks to run. */
  readonly share: number;
}

const inputs = {
  select: { title: "`SELECT 1`", input: "'SELECT 1'", writes: false },
  insert: {
    title: "one-row `INSERT`",
    input: "format('INSERT INTO sink (n) VALUES (%s)', n)",
    writes: true,
  },
  output: { title: "1 KB output", input: "'SELECT repeat(''x'', 1024)'", writes: false },
} as const;

const many = 1000;

export const works: readonly Work[] = [
  ...Object.entries(inputs).flatMap(([name, input]) => [
    { ...input, name, title: `${input.title}, one group`, groups: 1, serial: false, share: 1 },
    {
      ...input,
      name: `${name}-groups`,
      title: `${input.title}, 1,000 groups`,
      groups: many,
      serial: false,
      share: 1,
    },
  ]),
  {
    ...inputs.select,
    name: "serial",
    title: "`SELECT 1`, one after another",
    groups: 1,
    serial: true,
    share: 0.25,
  },
];

/**
 * Returns an SQL expression that yields the name of a task's group. `n` is the task's number.
 *
 * @returns null if all tasks may run at once
 */
export function groupExpression(work: Work): string | null {
  if (work.serial) return "'serial'";
  return work.groups === 1 ? null : `'group ' || n % ${work.groups}`;
}

/** Returns the first and the last number of the tasks for which task `n` waits, or null if it waits for none. */
export function predecessors(n: number, { kind, size }: Shape): readonly [number, number] | null {
  const place = (n - 1) % size;
  if (kind === "fan-in") return place === size - 1 ? [n - place, n - 1] : null;
  if (place === 0) return null;
  return kind === "chain" ? [n - 1, n - 1] : [n - place, n - place];
}

/** Returns how many tasks to run when `tasks` were asked for, because the sets of a shape have to be complete. */
export function wholeSets({ shape }: Work, tasks: number): number {
  if (shape === undefined) return tasks;
  return Math.max(1, Math.round(tasks / shape.size)) * shape.size;
}
