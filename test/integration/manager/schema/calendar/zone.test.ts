import assert from "node:assert/strict";
import { createDatabase } from "../../../../support/database.js";
import { test } from "../../../../support/limitedTest.js";
import { connectCalendar, schema } from "./cronTimes.js";

const client = await connectCalendar(await createDatabase("empty"));
await client.query(`
  CREATE FUNCTION check_zone(zone text) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
  DECLARE
    hint text;
  BEGIN
    PERFORM ${schema}.task_zone_check(zone);
    RETURN 'fine';
  EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(' | ', SQLSTATE, SQLERRM, nullif(hint, ''));
  END $$`);

async function checkZone(zone: string): Promise<string | undefined> {
  const { rows } = await client.query<{ answer: string }>("SELECT check_zone($1) AS answer", [zone]);
  return rows[0]?.answer;
}

test("every name of pg_timezone_names is a zone, in any case", async () => {
  const { rows } = await client.query(
    `SELECT name, answer FROM pg_timezone_names, LATERAL check_zone(CASE WHEN random() < 0.2 THEN lower(name) ELSE name END) AS answer
     WHERE answer <> 'fine' AND name !~ '^[CEMW]ET$'`,
  );
  assert.deepEqual(rows, []);
});

test("abbreviations are refused unless they are also names", async () => {
  const { rows } = await client.query(
    `WITH name AS MATERIALIZED (SELECT upper(name) AS name FROM pg_timezone_names)
     SELECT a.abbrev, answer FROM pg_timezone_abbrevs AS a, LATERAL check_zone(a.abbrev) AS answer
     -- Refusing one takes a while, so only some of them are tried.
     WHERE ascii(right(a.abbrev, 2)) % 5 = 0 AND (answer = 'fine') <> (upper(a.abbrev) IN (SELECT name FROM name WHERE name !~ '^[CEMW]ET$'))`,
  );
  assert.deepEqual(rows, []);
});

const place = "write the name of a region such as Europe/Berlin, or UTC";
for (const [zone, answer] of [
  ["UTC+3", "write Etc/GMT-3"],
  ["utc-03:00", "write Etc/GMT+3"],
  ["GMT+10", "write Etc/GMT-10"],
  ["+03", "write Etc/GMT-3"],
  ["-12", "write Etc/GMT+12"],
  ["+14", "write Etc/GMT-14"],
  ["-14", place],
  ["UTC+0", "write UTC"],
  ["UTC+5:30", place],
  ["<+03>-3", place],
  ["Etc/GMT+13", place],
  ["Foo/Bar3", place],
  ["Europe/Berlin3", place],
  ["CET-1CEST,M3.5.0,M10.5.0/3", place],
  ["PST", place],
  ["cest", place],
  ["Z", place],
] as const) {
  test(`${zone} is not a name: ${answer}`, async () => {
    assert.equal(await checkZone(zone), `22023 | time zone "${zone}" is not a name | ${answer}`);
  });
}

for (const zone of ["CET", "EET", "MET", "wet"]) {
  test(`${zone} is refused, because AT TIME ZONE takes it as an abbreviation`, async () => {
    const answer = `22023 | time zone "${zone}" would have no daylight saving time | write the name of a region such as Europe/Berlin`;
    assert.equal(await checkZone(zone), answer);
  });
}

for (const zone of [
  "Europe/Belrin",
  "Europe",
  "",
  " UTC",
  "Europe//Berlin",
  "/Europe/Berlin",
  "../UTC",
  "m\u00fcnchen",
]) {
  test(`${JSON.stringify(zone)} is not recognized, and the hint says where the names are`, async () => {
    const hint = "SELECT name FROM pg_timezone_names lists the names";
    assert.equal(await checkZone(zone), `22023 | time zone "${zone}" not recognized | ${hint}`);
  });
}

async function instants(wall: string, zone: string, mode: string): Promise<string[] | undefined> {
  const { rows } = await client.query<{ found: string[] }>(
    `SELECT ARRAY(SELECT to_char(i AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')
       FROM unnest(${schema}.task_zone_instants($1::text::timestamp, $2, $3)) AS i) AS found`,
    [wall, zone, mode],
  );
  return rows[0]?.found;
}

for (const [what, wall, zone, every, first, fixed] of [
  ["an ordinary time", "2023-06-01 12:00", "Europe/Berlin", ["2023-06-01 10:00:00"], null, null],
  ["a gap", "2023-03-26 02:30", "Europe/Berlin", [], [], ["2023-03-26 01:00:00"]],
  ["a gap of half an hour", "2023-10-01 02:15", "Australia/Lord_Howe", [], [], ["2023-09-30 15:30:00"]],
  ["a gap of two hours", "2023-03-26 01:30", "Antarctica/Troll", [], [], ["2023-03-26 01:00:00"]],
  ["a gap at midnight", "2018-11-04 00:00", "America/Sao_Paulo", [], [], ["2018-11-04 03:00:00"]],
  ["the end of a gap", "2023-03-26 03:00", "Europe/Berlin", ["2023-03-26 01:00:00"], null, null],
  ["a skipped day", "2011-12-30 12:00", "Pacific/Apia", [], [], []],
  ["a gap of seconds", "1893-04-01 00:03", "Europe/Berlin", [], [], ["1893-03-31 23:06:32"]],
  [
    "a repeated hour",
    "2023-10-29 02:30",
    "Europe/Berlin",
    ["2023-10-29 00:30:00", "2023-10-29 01:30:00"],
    ["2023-10-29 00:30:00"],
    ["2023-10-29 00:30:00"],
  ],
  [
    "a repeated half hour",
    "2023-04-02 01:45",
    "Australia/Lord_Howe",
    ["2023-04-01 14:45:00", "2023-04-01 15:15:00"],
    ["2023-04-01 14:45:00"],
    ["2023-04-01 14:45:00"],
  ],
  ["a year before time zones", "0001-02-03 04:05:06", "UTC", ["0001-02-03 04:05:06"], null, null],
] as const) {
  test(`instants of ${what}`, async () => {
    assert.deepEqual(await instants(wall, zone, "every"), every);
    assert.deepEqual(await instants(wall, zone, "first"), first ?? every);
    assert.deepEqual(await instants(wall, zone, "fixed"), fixed ?? every);
  });
}

test("the instants of wall times around clock changes are those at which the server shows them", async () => {
  // For each zone: the days around all changes of its offset, from before time zones existed to 2040.
  const { rows } = await client.query(
    `WITH change AS (
       SELECT name AS zone, day FROM unnest($1::text[]) AS name, LATERAL (
         SELECT day, ${schema}.task_zone_offset(day AT TIME ZONE 'UTC', name) AS before,
           ${schema}.task_zone_offset((day + interval '1 day') AT TIME ZONE 'UTC', name) AS after
         FROM generate_series(timestamp '1840-01-01', '2040-01-01', '1 day') AS day) AS d
       WHERE before <> after),
     seen AS (
       SELECT zone, instant AT TIME ZONE zone AS wall, array_agg(instant ORDER BY instant) AS instants
       FROM change, LATERAL (
         SELECT (day + i * interval '30 minutes') AT TIME ZONE 'UTC' AS instant FROM generate_series(-48, 96) AS i) AS t
       GROUP BY zone, wall)
     SELECT * FROM (
       SELECT zone, wall, instants, ${schema}.task_zone_instants(wall, zone, 'every') AS every,
         ${schema}.task_zone_instants(wall, zone, 'first') AS first,
         ${schema}.task_zone_instants(wall, zone, 'fixed') AS fixed FROM seen) AS f
     -- If a wall time is shown twice, the samples may contain it only once.
     WHERE NOT every @> instants OR first <> every[:1] OR fixed <> every[:1]
       OR cardinality(every) > 1 AND every[1] AT TIME ZONE zone <> every[2] AT TIME ZONE zone
     LIMIT 5`,
    [["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/Juneau"]],
  );
  assert.deepEqual(rows, []);
});
