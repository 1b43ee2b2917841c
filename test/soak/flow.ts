import type { Client } from "../../src/shared/postgres/client.js";
import type { Random } from "../chaos/random.js";

/** Number of unfinished tasks above which no more are inserted: they would only make the test longer. */
const maxUnfinished = 1_500;

/** Inputs that run for a short time. */
const short = ["SELECT 1", "SELECT 1", "SELECT pg_sleep(0.01)", "INSERT INTO effect VALUES (1)"];
const maxSleepSeconds = 6;

interface NewTask {
  readonly input: string;
  readonly group: string;
  readonly max: number;
  /** Time until the planned time, in ms. */
  readonly inMs: number;
}

/** Kinds of batches that are known to be difficult. */
const patterns: readonly ((random: Random) => NewTask[])[] = [
  // Many groups, with some long tasks.
  (random) => {
    const first = 100 * random.below(8);
    return many(random, 100, (nth) => ({ group: `many ${first + nth}`, max: 0 }));
  },
  // One group whose tasks may all run at once.
  (random) => many(random, 150, () => ({ group: "wide", max: 1000 })),
  // Some groups with limits.
  (random) =>
    many(random, random.between(1, 40), () => {
      const nth = random.below(12);
      return { group: `narrow ${nth}`, max: nth % 4 };
    }),
  // Groups that pause after each run.
  (random) => many(random, 5, () => ({ group: `pausing ${random.below(2)}`, max: -random.between(1, 300) })),
  // A single task, perhaps planned for later.
  (random) => [
    {
      input: random.pick(short),
      group: `single ${random.below(50)}`,
      max: random.below(3),
      inMs: random.below(1500),
    },
  ],
];

function many(random: Random, count: number, where: (nth: number) => Pick<NewTask, "group" | "max">): NewTask[] {
  const every = random.between(8, 50);
  return Array.from({ length: count }, (_, nth) => ({
    ...where(nth),
    input: nth % every === 0 ? `SELECT pg_sleep(${(random.next() * maxSleepSeconds).toFixed(2)})` : random.pick(short),
    inMs: 0,
  }));
}

export async function prepare(client: Client): Promise<void> {
  await client.query("CREATE TABLE effect (i int)");
}

/** Inserts a random batch, unless enough tasks are unfinished. */
export async function produce(client: Client, random: Random): Promise<void> {
  const { rows } = await client.query<{ waiting: number }>(
    "SELECT count(*)::integer AS waiting FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK')",
  );
  if ((rows[0]?.waiting ?? 0) > maxUnfinished) return;
  await insert(client, random.pick(patterns)(random));
}

export async function insert(client: Client, tasks: readonly NewTask[]): Promise<void> {
  await client.query(
    `INSERT INTO task (input, "group", max, plan)
     SELECT input, "group", max, now() + in_ms * interval '1 ms'
     FROM unnest($1::text[], $2::text[], $3::integer[], $4::integer[]) AS n(input, "group", max, in_ms)`,
    [
      tasks.map(({ input }) => input),
      tasks.map(({ group }) => group),
      tasks.map(({ max }) => max),
      tasks.map(({ inMs }) => inMs),
    ],
  );
}
