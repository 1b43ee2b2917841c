import assert from "node:assert/strict";
import { documentedBlocks, psqlTable, textResults, type TextResult as Result } from "../support/documentedPage.js";
import { test } from "../support/limitedTest.js";
import { only, until } from "../support/tasks.js";
import { projectText } from "../support/project.js";
import { serve } from "../support/serve.js";

const page = projectText("docs/schedules.md");
/** The moment of the page's examples. */
const moment = "2026-12-31 18:00Z";

const { database, client, tasks } = await serve(
  { "pg_task.delete": false },
  // Objects that the examples use.
  `
  SET TimeZone = 'UTC';
  CREATE TABLE sale (at timestamptz, amount numeric);
  CREATE MATERIALIZED VIEW sales AS SELECT sum(amount) FROM sale;
  CREATE PROCEDURE pay() LANGUAGE sql AS 'SELECT 1';
  CREATE PROCEDURE poll() LANGUAGE sql AS 'SELECT 1';
  CREATE PROCEDURE backup(integer) LANGUAGE sql AS 'SELECT 1';
  CREATE PROCEDURE remind_course() LANGUAGE sql AS 'SELECT 1'`,
);

/** The text between two headings. */
function section(heading: string): string {
  const text = page.split(`\n${heading}\n`)[1]?.split(/\n##+ /)[0];
  assert.ok(text !== undefined, heading);
  return text;
}

/** The cells of the tables in a text, without backquotes around them. The first row of each table is its header. */
function tables(text: string): string[][][] {
  return [...text.matchAll(/(?:^\|.*\n)+/gm)].map(([table]) =>
    table
      .trim()
      .split("\n")
      .filter((_, index) => index !== 1)
      .map((line) =>
        line
          .split("|")
          .slice(1, -1)
          .map((cell) => cell.trim().replace(/^`(.*)`$/, "$1")),
      ),
  );
}

/** Returns times of a rule as the zone's clocks show them, by default those after the page's moment. */
async function wallTimes(rule: string, zone: string, count: number, since = moment): Promise<string[]> {
  return await tasks.value(
    `SELECT ARRAY(SELECT to_char(wall, CASE extract(second FROM wall) WHEN 0 THEN 'YYYY-MM-DD HH24:MI' ELSE 'YYYY-MM-DD HH24:MI:SS' END)
       FROM task_times($1, $2, $3, $4))`,
    [rule, zone, since, count],
  );
}

/** Adds seconds to all times if one of them has seconds. */
const sameForm = (times: readonly string[]): string[] =>
  times.map((time) => (time.length === 16 && times.some(({ length }) => length === 19) ? `${time}:00` : time));

const blocks = documentedBlocks(page);

/** Sets the plan of the waiting tasks to now, and waits until they have ended without an error. */
async function finish(): Promise<void> {
  const ended = await tasks.endedOf("UPDATE task SET plan = now() WHERE state = 'PLAN' RETURNING id");
  for (const { state, error } of ended) assert.deepEqual([state, error], ["DONE", null]);
}

/** Replaces plans that depend on the current time with those at the page's moment. */
async function atMoment(sql: string, result: Result): Promise<Result> {
  const given = /INSERT INTO task \([^)]*\bplan\b/.test(sql);
  if (given || !/RETURNING .*\bplan\b/.test(sql)) return result;
  const planned: Record<string, string | null>[] = [];
  for (const row of result.rows) {
    const [now, then] = await tasks.value<[string, string]>(
      `SELECT ARRAY[task_next(rule, zone)::text, task_next(rule, zone, $1)::text] FROM task ORDER BY id DESC LIMIT 1`,
      [moment],
    );
    if (row["plan"] !== "infinity") assert.equal(row["plan"], now);
    planned.push({ ...row, plan: row["plan"] === "infinity" ? row["plan"] : then });
  }
  return { fields: result.fields, rows: planned };
}

for (const [index, { sql, result }] of blocks.entries()) {
  test(`block ${index + 1} of the page is accepted, and does what the page says`, async () => {
    if (sql.includes("INSERT INTO task ")) {
      await finish();
      await client.query("TRUNCATE task RESTART IDENTITY");
    }
    const last = (await textResults(client, sql)).at(-1);
    assert.ok(last !== undefined);
    if (result !== undefined) assert.equal(psqlTable(await atMoment(sql, last)), result.replaceAll(/ +$/gm, ""));
    const comments = sql.replaceAll(/\n-- then (.*), and no more/g, ", $1, end").match(/^-- at (.*)$/m)?.[1];
    const inserts = /INSERT INTO task .*?\brule\b/s.test(sql);
    if (comments !== undefined) {
      const [rule, zone] = await tasks.value<[string, string]>(
        "SELECT ARRAY[rule, zone] FROM task ORDER BY id DESC LIMIT 1",
      );
      const wanted = comments.split(", ");
      const times = await wallTimes(rule, zone, wanted.length);
      assert.deepEqual(wanted.at(-1) === "end" ? [...times, "end"] : times, wanted);
    } else if (inserts) {
      assert.match(sql, /rule\) VALUES|SELECT public\./, "an example has its times in a comment");
    }
    if (sql.includes("plan = now()")) await tasks.ended("1");
  });
}

test("the task whose rule is a query is planned an hour later, and five minutes later after an error", async () => {
  const { sql } = only(blocks.filter((block) => block.sql.includes("pg_task.state")));
  await client.query("TRUNCATE task RESTART IDENTITY");
  await client.query(sql);
  const assertPlanned = async (where: string, inMinutes: number): Promise<void> => {
    const planned = `SELECT date_part('epoch', plan - now()) / 60 AS minutes FROM task WHERE ${where} AND wait IS NULL AND state = 'PLAN'`;
    const { minutes } = only(await until<{ minutes: number }>(client, planned));
    assert.ok(Math.abs(minutes - inMinutes) < 2);
  };
  await assertPlanned("id = 1", 60);
  await client.query("UPDATE task SET plan = now(), input = 'SELECT 1/0' WHERE id = 1");
  await assertPlanned("parent = 1", 5);
  await client.query("UPDATE task SET plan = now(), input = 'CALL poll()' WHERE parent = 1");
  await assertPlanned("parent = 2", 60);
});

const [cron = []] = tables(section("## Cron"));
const [recurrences = []] = tables(section("## Recurrence rules"));

for (const [rule = "", , times = ""] of [...cron.slice(1), ...recurrences.slice(1)]) {
  test(`the times of ${rule} are those of the page`, async () => {
    const wanted = times.split(", ");
    const ends = wanted.at(-1) === "no more";
    if (ends) wanted.pop();
    assert.deepEqual(sameForm(await wallTimes(rule, "UTC", ends ? 10 : wanted.length)), sameForm(wanted));
  });
}

const digits = (value: number): string => String(value).padStart(2, "0");

/** The times of a rule with their offsets from UTC, such as `2027-10-31 02:30+02`. */
async function offsetTimes(rule: string, zone: string, since: string, count: number): Promise<string[]> {
  const rows = await tasks.rows<{ wall: string; offset: number }>(
    `SELECT to_char(wall, 'YYYY-MM-DD HH24:MI') AS wall,
       (extract(epoch FROM wall - (time AT TIME ZONE 'UTC')) / 60)::integer AS offset
     FROM task_times($1, $2, $3, $4)`,
    [rule, zone, since, count],
  );
  return rows.map(({ wall, offset }) => {
    const size = Math.abs(offset);
    const minutes = size % 60 === 0 ? "" : `:${digits(size % 60)}`;
    return `${wall}${offset < 0 ? "-" : "+"}${digits(Math.floor(size / 60))}${minutes}`;
  });
}

const [nights = [], places = []] = tables(section("## When the clocks change"));

for (const [rule = "", forward = "", back = ""] of nights.slice(1)) {
  for (const [day, since, wanted] of [
    ["2027-03-28", "2027-03-27 22:30Z", forward],
    ["2027-10-31", "2027-10-30 21:30Z", back],
  ] as const) {
    test(`the times of ${rule} on ${day} are those of the page`, async () => {
      // Rules without BYMINUTE take the minute from the time at which they begin.
      const begin = rule.includes("BYMINUTE") ? since : since.replace(":30Z", ":00Z");
      const found = (await offsetTimes(rule, "Europe/Berlin", begin, 30))
        .filter((time) => time.startsWith(day))
        .map((time) => time.slice(11))
        .filter((time) => time >= "01:00" && time < "04:01");
      assert.deepEqual(found, wanted === "none" ? [] : wanted.split(", "));
    });
  }
}

for (const [zone = "", rule = "", since = "", times = ""] of places.slice(1)) {
  test(`the times of ${rule} in ${zone} are those of the page`, async () => {
    const wanted = times.split(", ");
    assert.deepEqual(await offsetTimes(rule, zone, since, wanted.length), wanted);
  });
}

/** The columns of a task, as an SQL list such as `active = '1 day', catchup = true`. */
function columns(cell: string): { names: string; values: string } {
  const parts = cell.startsWith("(") ? [] : [...cell.matchAll(/(\w+) = ('[^']*'|\w+)/g)];
  return {
    names: parts.map(([, name = ""]) => `, ${name}`).join(""),
    values: parts.map(([, , value = ""]) => `, ${value}`).join(""),
  };
}

const chain = `WITH RECURSIVE run AS (
    SELECT t.* FROM task AS t WHERE t.id = FIRST UNION ALL SELECT t.* FROM task AS t JOIN run AS r ON t.parent = r.id
  ) SELECT id, state::text AS state, date_part('epoch', plan) AS plan, date_part('epoch', start) AS start,
      date_part('epoch', stop) AS stop FROM run ORDER BY id`;

interface Run {
  readonly state: string;
  readonly plan: number;
  readonly start: number;
  readonly stop: number;
}

const [missed = []] = tables(section("## Missed times"));

for (const [cell = "", ...outcomes] of missed.slice(1)) {
  test(`with ${cell}, missed times have the outcomes of the page`, async () => {
    const { names, values } = columns(cell.replaceAll("`", ""));
    // The times lie ten minutes before the current minute of the hour, as 14:00 lies before 14:10 on the page.
    const rows = await tasks.rows<{ id: string; first: number }>(
      `INSERT INTO task (rule, zone, plan, "group", input${names})
       SELECT format('%s * * * *', extract(minute FROM begin)), 'UTC', begin, begin || $$${cell}$$, 'SELECT 1'${values}
       FROM (SELECT date_trunc('minute', now()) - interval '4 hours 10 minutes' AS begin) AS b
       RETURNING id, date_part('epoch', plan) AS first`,
    );
    const { id, first } = only(rows);
    const runs = await until<Run>(client, chain.replace("FIRST", id), (found) => {
      const next = found.at(-1);
      return next?.state === "PLAN" && next.plan > Date.now() / 1000;
    });
    const states = new Map(runs.map(({ plan, state }) => [Math.round((plan - first) / 3600), state]));
    assert.deepEqual(
      [0, 1, 2, 3, 4, 5].map((hour) => states.get(hour) ?? ""),
      [...outcomes, "PLAN"],
    );
  });
}

const [long = []] = tables(section("## Long runs"));

test("long runs of all kinds are those of the page", async () => {
  /** What an hour of the page is here, in seconds. A run may begin late by less than half of it. */
  const hour = 6;
  await Promise.all(
    long.slice(1).map(async ([cell = "", times = "", most = ""]) => {
      const { names, values } = columns(cell.replaceAll("`", ""));
      const own = await database.connect();
      const { rows } = await own.query<{ id: string; first: number }>(
        `INSERT INTO task (rule, zone, active, "group", input${names})
         SELECT '*/${hour} * * * * *', 'UTC', '1 day', $$long ${cell}$$, 'SELECT pg_sleep(${2.5 * hour})'${values}
         RETURNING id, date_part('epoch', plan) AS first`,
      );
      const { id, first } = only(rows);
      const done = (run: Run | undefined): boolean => run?.state === "DONE";
      const runs = await until<Run>(own, chain.replace("FIRST", id), (found) => done(found[2]));
      await own.query(`UPDATE task SET rule = NULL, zone = NULL WHERE "group" = $1`, [`long ${cell}`]);
      await own.query(`UPDATE task SET state = 'STOP' WHERE "group" = $1 AND stop IS NULL`, [`long ${cell}`]);
      const firstThree = runs.slice(0, 3);
      const found = firstThree.map(({ plan }) => `${10 + Math.round((plan - first) / hour)}:00`);
      const beside = Math.max(
        ...firstThree.map(({ start }) => firstThree.filter((run) => run.start <= start && start < run.stop).length),
      );
      assert.deepEqual([found.join(", "), String(beside)], [times, most], cell);
    }),
  );
});

test("the values of columns that the page gives elsewhere are accepted too", async () => {
  const cells = tables(section("## In the words of other schedulers"))
    .flat()
    .flatMap(([, here = ""]) =>
      [...here.matchAll(/\w+ = (?:'[^']*'|\w+)(?:, \w+ = (?:'[^']*'|\w+))*/g)].map(([it]) => it),
    );
  assert.ok(cells.length >= 4);
  for (const cell of cells) {
    const { names, values } = columns(cell);
    const rule = names.includes("repeat") ? ["", ""] : [", rule", ", '@yearly'"];
    await client.query(`INSERT INTO task (input${rule[0]}${names}) VALUES ('SELECT 1'${rule[1]}${values})`);
  }
});

/** The zone of a new rule that names none. */
const zone = (): Promise<string> =>
  tasks.value("INSERT INTO task (input, rule) VALUES ('SELECT 1', '@yearly') RETURNING zone");

test("the zone does not depend on the session's TimeZone, but on its pg_task.zone", async () => {
  const own = await zone();
  await client.query(`ALTER DATABASE ${database.target.database} SET TimeZone = 'Asia/Kolkata'`);
  assert.equal(await zone(), "Asia/Kolkata");
  await client.query(`ALTER ROLE CURRENT_USER IN DATABASE ${database.target.database} SET timezone = 'Asia/Kathmandu'`);
  assert.equal(await zone(), "Asia/Kathmandu");
  await client.query(
    `ALTER ROLE CURRENT_USER IN DATABASE ${database.target.database} RESET TimeZone; ALTER DATABASE ${database.target.database} RESET TimeZone`,
  );
  await client.query("SET TimeZone = 'Asia/Tokyo'");
  assert.equal(await zone(), own);
  await client.query("SET TimeZone = 'UTC'; SET pg_task.zone = 'America/Lima'");
  assert.equal(await zone(), "America/Lima");
  await client.query("RESET pg_task.zone");
});

test("a run whose rule has become invalid keeps its outcome, and says so", async () => {
  await client.query("BEGIN");
  const [id = ""] = await tasks.insert({ input: "SELECT 1", rule: "@yearly", zone: "UTC", plan: "infinity" });
  await client.query("SET LOCAL pgtask.manager = 'on'");
  await client.query("UPDATE task SET zone = 'Europe/Atlantis', plan = now() WHERE id = $1", [id]);
  await client.query("COMMIT");
  const { state, error } = only(await tasks.ended(id));
  assert.equal(state, "DONE");
  assert.match(error ?? "", /ERROR: {2}next run was not planned: time zone "Europe\/Atlantis" not recognized/);
});

/** Inserts the line break that a cell of the page's table cannot contain. */
const lines = (text: string): string => text.replaceAll("Z RRULE", "Z\nRRULE");

const [errors = []] = tables(section("## Errors"));

test("the tables of the page are complete", () => {
  for (const [[header, ...rows], titles, least] of [
    [cron, "rule, meaning, next times", 18],
    [recurrences, "rule, meaning, next times", 15],
    [nights, "rule, clocks set forward, clocks set back", 7],
    [places, "zone, rule, after, next times", 3],
    [missed, "columns, 10:00, 11:00, 12:00, 13:00, 14:00", 5],
    [long, "columns, the first three runs are those of, most at once", 4],
    [errors, "columns, message, detail or hint", 20],
  ] as const) {
    assert.equal(header?.join(", "), titles);
    assert.ok(rows.length >= least, titles);
  }
});

for (const [cell = "", message = "", more = ""] of errors.slice(1)) {
  test(`${cell} is refused with the error of the page`, async () => {
    const parts = [...cell.matchAll(/(\w+) = ('[^']*'|\w+)/g)];
    const names = parts.map(([, name = ""]) => `, ${name}`).join("");
    const values = parts.map(([, , value = ""]) => `, ${lines(value)}`).join("");
    const insert = client.query(`INSERT INTO task (input${names}) VALUES ('SELECT 1'${values})`);
    const whole = message.replace("…", `rule "${/^rule = '(.*?)'/.exec(cell)?.[1]}"`);
    await assert.rejects(insert, (error: Error & { code?: string; detail?: string; hint?: string }) => {
      assert.deepEqual([error.message, error.code], [lines(whole), "22023"]);
      assert.equal(error.detail ?? error.hint ?? "", more.startsWith("(") ? "" : more);
      return true;
    });
  });
}
