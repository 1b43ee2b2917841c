import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";
import type { Random } from "../chaos/random.js";

/** Ids of rows that the soak test itself has locked. These tasks need not be claimed. */
export type Locked = Set<string>;

/** A change to rows that pg-task may be working on. */
interface Disturbance {
  readonly name: string;
  readonly weight: number;
  apply(client: Client, random: Random, locked: Locked): Promise<unknown>;
}

/** Returns SQL for an array of the ids of some tasks in these states: the oldest, the newest, or random ones. */
function selectSome(random: Random, states: readonly string[], max = 60): string {
  const order = random.pick(["id", "id DESC", "random()"]);
  const list = states.map((state) => `'${state}'`).join(", ");
  return `ARRAY(SELECT id FROM task WHERE state IN (${list}) ORDER BY ${order} LIMIT ${random.between(1, max)})`;
}

/**
 * Does the same as `selectSome`, but sometimes selects all tasks in these states, so that their number becomes small.
 */
const selectSomeOrAll = (random: Random, states: readonly string[]): string =>
  random.below(8) === 0
    ? `ARRAY(SELECT id FROM task WHERE state = ANY ('{${states.join(",")}}'))`
    : selectSome(random, states);

/**
 * Returns a disturbance that changes some tasks. The server checks the outer condition again for rows that have changed
 * in the meantime.
 */
const change =
  (set: (random: Random) => string, ...states: string[]) =>
  async (client: Client, random: Random): Promise<unknown> =>
    await client.query(
      `UPDATE task SET ${set(random)} WHERE id = ANY (${selectSome(random, states)})
         AND state IN (${states.map((state) => `'${state}'`).join(", ")})`,
    );

const remove =
  (...states: string[]) =>
  async (client: Client, random: Random): Promise<unknown> =>
    await client.query(`DELETE FROM task WHERE id = ANY (${selectSomeOrAll(random, states)})`);

const stop =
  (...states: string[]) =>
  async (client: Client, random: Random): Promise<unknown> =>
    await client.query(
      `UPDATE task SET state = 'STOP' WHERE id = ANY (${selectSomeOrAll(random, states)})
         AND state IN (${states.map((state) => `'${state}'`).join(", ")})`,
    );

const to = (state: string) => (): string => `state = '${state}'`;

export const disturbances: readonly Disturbance[] = [
  { name: "delete in TAKE", weight: 6, apply: remove("TAKE") },
  { name: "delete in WORK", weight: 2, apply: remove("WORK") },
  { name: "delete in PLAN", weight: 2, apply: remove("PLAN") },
  { name: "stop in PLAN", weight: 6, apply: stop("PLAN") },
  { name: "stop in TAKE", weight: 4, apply: stop("TAKE") },
  { name: "stop in WORK", weight: 2, apply: stop("WORK") },
  { name: "replan in TAKE or WORK", weight: 4, apply: change(to("PLAN"), "TAKE", "WORK") },
  { name: "replan ended tasks", weight: 2, apply: change(to("PLAN"), "STOP", "DONE", "FAIL") },
  { name: "end from outside", weight: 1, apply: change(to("FAIL"), "PLAN", "TAKE", "WORK") },
  {
    name: "postpone",
    weight: 2,
    apply: change((random) => `plan = now() + interval '${random.below(2000)} ms'`, "PLAN"),
  },
  { name: "plan for now", weight: 2, apply: change(() => "plan = now()", "PLAN") },
  {
    name: "another max",
    weight: 3,
    apply: change((random) => `max = ${random.between(-50, 5)}`, "PLAN", "TAKE", "WORK"),
  },
  {
    name: "another group",
    weight: 2,
    apply: change((random) => `"group" = 'narrow ${random.below(12)}'`, "PLAN", "TAKE"),
  },
  { name: "lock", weight: 6, apply: lock },
  {
    name: "pause a group, then resume it",
    weight: 2,
    apply: async (client, random) => {
      const group = `${random.pick(["narrow", "many"])} ${random.below(12)}`;
      await client.query(`INSERT INTO task_pause ("group") VALUES ($1) ON CONFLICT DO NOTHING`, [group]);
      await sleep(random.below(1500));
      await client.query(`DELETE FROM task_pause WHERE "group" = $1`, [group]);
    },
  },
  {
    name: "pause the table, then resume it",
    weight: 1,
    apply: async (client, random) => {
      await client.query(`INSERT INTO task_pause ("group") VALUES (NULL)`);
      await sleep(random.below(1000));
      await client.query(`DELETE FROM task_pause WHERE "group" IS NULL`);
    },
  },
];

/** Locks rows in a transaction that stays open for a while and may change them. */
async function lock(client: Client, random: Random, locked: Locked): Promise<void> {
  await client.query("BEGIN");
  const { rows } = await client.query<{ id: string }>(
    `SELECT id FROM task WHERE id = ANY (${selectSome(random, ["PLAN", "TAKE", "WORK"], 20)})
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
