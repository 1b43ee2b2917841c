import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { roughSeconds } from "../../../../src/shared/config/intervalText.js";
import { parseSize } from "../../../../src/shared/config/sizeText.js";
import { createDatabase } from "../../../support/database.js";

const database = await createDatabase("empty");

/**
 * Returns, for each text, the sign of the interval according to the server: -1, 0 or 1, or null if the text is invalid.
 */
async function serverSigns(texts: readonly string[]): Promise<(number | null)[]> {
  const client = await database.connect();
  await client.query(`
    CREATE OR REPLACE FUNCTION sign_of(given text) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
      RETURN CASE WHEN given::interval > '0' THEN 1 WHEN given::interval < '0' THEN -1 ELSE 0 END;
    EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow OR interval_field_overflow THEN
      RETURN NULL;
    END $$`);
  const { rows } = await client.query<{ sign: number | null }>(
    "SELECT sign_of(t) AS sign FROM unnest($1::text[]) WITH ORDINALITY AS given(t, n) ORDER BY n",
    [texts],
  );
  return rows.map(({ sign }) => sign);
}

const words =
  "us usec microsecond microseconds ms msecs millisecond milliseconds s sec SEC secs second Seconds m min mins minute minutes h hr hrs hour hours d day Days w week weeks mon mons month months y yr yrs year years dec decade decades c century centuries mil millennium millennia".split(
    " ",
  );
const number = fc.oneof(fc.nat({ max: 5000 }).map(String), fc.constantFrom("0", "1", "1.5", "0.25", ".5", "2.", "007"));
const sign = fc.constantFrom("", "", "", "-", "+", "- ");
const clock = fc
  .tuple(fc.nat({ max: 30 }), fc.nat({ max: 59 }), fc.constantFrom("", ":00", ":07", ":59.25", ".5"))
  .map(([hours, minutes, rest]) => `${hours}:${String(minutes).padStart(2, "0")}${rest}`);
const amount = fc.tuple(number, fc.constantFrom("", " ", "  "), fc.constantFrom(...words));
const part = fc.tuple(
  sign,
  fc.oneof(
    { weight: 5, arbitrary: amount.map((pieces) => pieces.join("")) },
    clock,
    number,
    fc.constantFrom("1-2", "0-11"),
  ),
);
const worded = fc
  .tuple(
    fc.constantFrom("", "", "@ ", " "),
    fc.array(
      part.map((pieces) => pieces.join("")),
      { minLength: 1, maxLength: 3 },
    ),
    fc.constantFrom(" ", ", ", "  "),
    fc.constantFrom("", "", " ago", " "),
  )
  .map(([before, parts, between, after]) => `${before}${parts.join(between)}${after}`);
const designated = fc
  .tuple(
    fc.array(
      fc.tuple(
        sign.filter((it) => it !== "- "),
        number,
        fc.constantFrom(..."YMWD".split("")),
      ),
      {
        maxLength: 3,
      },
    ),
    fc.array(fc.tuple(number, fc.constantFrom(..."HMS".split(""))), { maxLength: 3 }),
  )
  .map(([date, time]) => {
    const rest = time.length === 0 ? "" : `T${time.flat().join("")}`;
    return `P${date.flat().join("")}${rest}`;
  });
const alternative = fc.constantFrom(
  "P0001-02-03T04:05:06",
  "P00010203T040506",
  "P1-2",
  "P0000-00-01",
  "infinity",
  "-infinity",
);
const intervals = fc.oneof({ weight: 4, arbitrary: worded }, designated, alternative);

void test("accepts every interval that the server accepts, with the right sign", async () => {
  const texts = fc.sample(intervals, 3000);
  const signs = await serverSigns(texts);
  const accepted = signs.filter((it) => it !== null).length;
  assert.ok(accepted > texts.length / 4, `the server accepted only ${accepted} of ${texts.length}`);
  for (const [index, text] of texts.entries()) {
    const expected = signs[index];
    if (expected === null || expected === undefined) continue;
    const seconds = roughSeconds(text);
    assert.notEqual(seconds, null, `the server accepts ${JSON.stringify(text)}`);
    // The server rounds intervals to microseconds.
    if (seconds !== null && Math.abs(seconds) < 1e-6) continue;
    // In an interval with a clock time, the server ignores the hours that a fraction of a day stands for.
    if (/:/.test(text) && /\./.test(text)) continue;
    assert.equal(Math.sign(seconds ?? 0), expected, JSON.stringify(text));
  }
});

void test("common intervals have the right length", () => {
  const day = 86_400;
  const cases: Readonly<Record<string, number>> = {
    "1 hour": 3600,
    "01:30:00": 5400,
    P1D: day,
    "90 sec": 90,
    "1 day 2:00": day + 7200,
    "1 12:00": day + day / 2,
    "0": 0,
    "90": 90,
    "1 hour ago": -3600,
    "-1 day": -day,
    "@ 2 weeks": 14 * day,
    "1 mon -1 day": 29 * day,
    PT36H: 129_600,
  };
  for (const [text, seconds] of Object.entries(cases)) assert.equal(roughSeconds(text), seconds, text);
});

void test("rejects invalid intervals, like the server", async () => {
  const texts = ["", " ", "soon", "five days", "1 fortnight", "1 2", "1:60", "P", "P1D2H"];
  texts.push("1 ago", "ago", "1.5.5 s", "--5 s", "1/2 day", "::", "1e3 s", "p1d", "1:2:3:4", "1 µs");
  assert.deepEqual(
    await serverSigns(texts),
    texts.map(() => null),
  );
  // PostgreSQL before 15 accepts the last text.
  for (const text of [...texts, "day 1"]) assert.equal(roughSeconds(text), null, JSON.stringify(text));
});

void test("sizes are parsed like pg_size_bytes", async () => {
  const client = await database.connect();
  for (const text of ["1", "64kB", "64 MB", "1GB", "1.5MB", "17"]) {
    const { rows } = await client.query<{ bytes: string }>("SELECT pg_size_bytes($1) AS bytes", [text]);
    assert.equal(String(parseSize(text)), rows[0]?.bytes, text);
  }
  // PostgreSQL before 16 does not know this unit.
  assert.equal(parseSize("0B"), 0);
  for (const text of ["", "MB", "64mb", "64KB", "-1", "1 TBs", "0x10", "1e3"]) {
    assert.equal(parseSize(text), null, text);
  }
});
