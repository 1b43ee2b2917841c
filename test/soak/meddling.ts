import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";
import type { Random } from "../chaos/random.js";

/** Rows that the soak itself has locked: nothing has to take them. */
export type Locked = Set<string>;

/** Something that somebody does to rows, whatever pg-task is doing with them. */
interface Meddling {
  readonly name: string;
  readonly weight: number;
  meddle(client: Client, random: Random, locked: Locked): Promise<unknown>;
}

/** SQL of the ids of some tasks in one of these states: the oldest, the newest, or any. */
function some(random: Random, states: readonly string[], most = 60): string {
  const order = random.pick(["id", "id DESC", "random()"]);
  const list = states.map((state) => `'${state}'`).join(", ");
  return `ARRAY(SELECT id FROM task WHERE state IN (${list}) ORDER BY ${order} LIMIT ${random.between(1, most)})`;
}

/** The same; now and then all of them, for what makes them fewer. */
const someOrAll = (random: Random, states: readonly string[]): string =>
  random.below(8) === 0
    ? `ARRAY(SELECT id FROM task WHERE state = ANY ('{${states.join(",")}}'))`
    : some(random, states);

/** The outer condition is read again of rows that changed meanwhile. */
const change =
  (set: (random: Random) => string, ...states: string[]) =>
  async (client: Client, random: Random): Promise<unknown> =>
    await client.query(
      `UPDATE task SET ${set(random)} WHERE id = ANY (${some(random, states)})
         AND state IN (${states.map((state) => `'${state}'`).join(", ")})`,
    );

const remove =
  (...states: string[]) =>
  async (client: Client, random: Random): Promise<unknown> =>
    await client.query(`DELETE FROM task WHERE id = ANY (${someOrAll(random, states)})`);

const stop =
  (...states: string[]) =>
  async (client: Client, random: Random): Promise<unknown> =>
    await client.query(
      `UPDATE task SET state = 'STOP' WHERE id = ANY (${someOrAll(random, states)})
         AND state IN (${states.map((state) => `'${state}'`).join(", ")})`,
    );

const to = (state: string) => (): string => `state = '${state}'`;

const meddlings: readonly Meddling[] = [
  { name: "delete in TAKE", weight: 6, meddle: remove("TAKE") },
  { name: "delete in WORK", weight: 2, meddle: remove("WORK") },
  { name: "delete in PLAN", weight: 2, meddle: remove("PLAN") },
  { name: "stop in PLAN", weight: 6, meddle: stop("PLAN") },
  { name: "stop in TAKE", weight: 4, meddle: stop("TAKE") },
  { name: "stop in WORK", weight: 2, meddle: stop("WORK") },
  { name: "replan in TAKE or WORK", weight: 4, meddle: change(to("PLAN"), "TAKE", "WORK") },
  { name: "replan what has ended", weight: 2, meddle: change(to("PLAN"), "STOP", "DONE", "FAIL") },
  { name: "end from outside", weight: 1, meddle: change(to("FAIL"), "PLAN", "TAKE", "WORK") },
  {
    name: "put off",
    weight: 2,
    meddle: change((random) => `plan = now() + interval '${random.below(2000)} ms'`, "PLAN"),
  },
  { name: "plan for now", weight: 2, meddle: change(() => "plan = now()", "PLAN") },
  {
    name: "another max",
    weight: 3,
    meddle: change((random) => `max = ${random.between(-50, 5)}`, "PLAN", "TAKE", "WORK"),
  },
  {
    name: "another group",
    weight: 2,
    meddle: change((random) => `"group" = 'narrow ${random.below(12)}'`, "PLAN", "TAKE"),
  },
  { name: "lock", weight: 6, meddle: lock },
  {
    name: "pause a group, then let it go on",
    weight: 2,
    meddle: async (client, random) => {
      const group = `${random.pick(["narrow", "many"])} ${random.below(12)}`;
      await client.query(`INSERT INTO task_pause ("group") VALUES ($1) ON CONFLICT DO NOTHING`, [
        group,
      ]);
      await sleep(random.below(1500));
      await client.query(`DELETE FROM task_pause WHERE "group" = $1`, [group]);
    },
  },
  {
    name: "pause the table, then let it go on",
    weight: 1,
    meddle: async (client, random) => {
      await client.query(`INSERT INTO task_pause ("group") VALUES (NULL)`);
      await sleep(random.below(1000));
      await client.query(`DELETE FROM task_pause WHERE "group" IS NULL`);
    },
  },
];

/** In a transaction that stays open for a while, and may change what it has locked. */
async function lock(client: Client, random: Random, locked: Locked): Promise<void> {
  await client.query("BEGIN");
  const { rows } = await client.query<{ id: string }>(
    `SELECT id FROM task WHERE id = ANY (${some(random, ["PLAN", "TAKE", "WORK"], 20)})
     ORDER BY id FOR UPDATE SKIP LOCKED`,
  );
  const ids = rows.map(({ id }) => id);
  for (const id of ids) locked.add(id);
  try {
    await sleep(random.below(1500));
    const what = random.below(4);
    if (what === 0) await client.query("UPDATE task SET state = 'STOP' WHERE id = ANY ($1)", [ids]);
    if (what === 1) await client.query("DELETE FROM task WHERE id = ANY ($1)", [ids]);
    if (what === 2) await client.query("UPDATE task SET data = 'x' WHERE id = ANY ($1)", [ids]);
    await client.query(random.below(4) === 0 ? "ROLLBACK" : "COMMIT");
  } finally {
    for (const id of ids) locked.delete(id);
  }
}

/** One of them, the heavier ones more often. */
export function pickMeddling(random: Random): Meddling {
  let left = random.below(meddlings.reduce((sum, { weight }) => sum + weight, 0));
  for (const meddling of meddlings) {
    left -= meddling.weight;
    if (left < 0) return meddling;
  }
  throw new Error("meddlings without a weight");
}
