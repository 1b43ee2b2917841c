import assert from "node:assert/strict";
import { test } from "node:test";
import { judgeSchedule, type Expectation, type ScheduledRow } from "./scheduleJudge.js";

const second = 1e6;
const base = 1_800_000_000 * second;
const at = (seconds: number): number => base + seconds * second;

/** A schedule that is due every second. */
const everySecond: Expectation = {
  name: "schedule",
  columns: { catchup: true, max: 0 },
  root: "1",
  active: 3600 * second,
  ends: false,
  fails: () => false,
  grid: Array.from({ length: 10 }, (_, index) => at(index)),
  refusals: [],
  pauses: [],
};
const skipping: Expectation = { ...everySecond, columns: { max: 0 } };

/** A row that ran on time for the second `id - 1`. */
function served(id: number, more: Partial<ScheduledRow> = {}): ScheduledRow {
  const time = at(id - 1);
  return {
    id: String(id),
    parent: id === 1 ? null : String(id - 1),
    state: "DONE",
    time,
    plan: time,
    created: time - 0.9 * second,
    take: time,
    start: time,
    stop: time + 0.1 * second,
    written: time + 0.1 * second,
    effects: [time],
    error: null,
    suspension: null,
    ...more,
  };
}

const waiting = (id: number, more: Partial<ScheduledRow> = {}): ScheduledRow =>
  served(id, { state: "STOP", take: null, start: null, stop: null, effects: [], ...more });

const chain = [served(1), served(2), served(3), waiting(4)];
const late = { parent: "2", time: at(5), plan: at(5), created: at(4.5) };

/** Pauses after two failures in a row. */
const suspending: Expectation = { ...everySecond, columns: { catchup: true, suspend: 2 }, fails: (id) => id !== 1n };
const failed = (id: number, more: Partial<ScheduledRow> = {}): ScheduledRow =>
  served(id, { state: "FAIL", effects: [], ...more });
/** Resumed after some seconds, whose times are left out. */
const resumed = { take: at(6.1), start: at(6.1), stop: at(6.2), suspension: { failures: 2, until: at(5.5) } };
const suspended = [
  served(1),
  failed(2),
  failed(3),
  failed(4, { ...resumed, time: at(6) }),
  waiting(8, { parent: "4", time: at(7), created: at(6.2) }),
];
const pausing: Expectation = {
  ...suspending,
  columns: { ...suspending.columns, overlap: true, max: 0 },
  pauses: [{ reason: "suspended after 2 failures in a row, the last that of task 3", since: at(2.1), until: at(2.9) }],
};
const pausedGroup = [served(1), failed(2), failed(3), failed(4), waiting(5)].map((row) => ({
  ...row,
  created: row.created - second,
}));

for (const [what, expected, rows] of [
  ["was suspended and resumed", suspending, suspended],
  [
    "was suspended and stopped",
    suspending,
    [...suspended.slice(0, 3), waiting(4, { suspension: { failures: 2, until: null } })],
  ],
  ["paused its group", pausing, pausedGroup],
  ["goes on", everySecond, chain],
  ["leaves out what was over when it was planned", skipping, [served(1), served(2), waiting(6, late)]],
  ["is over", { ...everySecond, ends: true, runs: 10 }, Array.from({ length: 10 }, (_, index) => served(index + 1))],
  [
    "has a run that expired",
    { ...everySecond, active: 0.5 * second },
    [served(1), served(2, { state: "GONE", effects: [], start: at(1.6), stop: at(1.6) }), waiting(3)],
  ],
  [
    "has a run that failed",
    { ...everySecond, fails: (id) => id === 2n },
    [served(1), served(2, { state: "FAIL", effects: [] }), waiting(3)],
  ],
  ["is a query", { ...everySecond, grid: [], follows: (last, time) => time === last.time + second }, chain],
  [
    "overlaps, and whose successor was refused before the start",
    {
      ...everySecond,
      columns: { catchup: true, overlap: true, max: 0 },
      refusals: [{ since: at(-0.1), until: at(0.05) }],
    },
    [served(1), served(2, { created: at(0.1) }), waiting(3)],
  ],
] satisfies [string, Expectation, ScheduledRow[]][]) {
  test(`accepts a schedule that ${what}`, () => assert.deepEqual(judgeSchedule(expected, rows), []));
}

for (const [what, message, expected, rows] of [
  ["was not suspended", /after null failures instead of 2/, suspending, [served(1), failed(2), failed(3), waiting(4)]],
  [
    "was suspended too early",
    /after 1 failures instead of null/,
    suspending,
    [served(1), failed(2), waiting(3, { suspension: { failures: 1, until: null } })],
  ],
  [
    "ran while it was suspended",
    /ran while it was suspended/,
    suspending,
    suspended.with(3, failed(4, { ...resumed, time: at(6), take: at(5.4) })),
  ],
  [
    "left out a time after it was resumed",
    /missing/,
    suspending,
    suspended.with(3, failed(4, { ...resumed, time: at(7) })),
  ],
  ["did not pause its group", /pauses {2}instead of suspended/, { ...pausing, pauses: [] }, pausedGroup],
  [
    "was claimed while its group was paused",
    /claimed while its group was paused/,
    pausing,
    pausedGroup.with(3, failed(4, { take: at(2.5) })),
  ],
  ["ended without a reason", /0 rows waited/, everySecond, chain.slice(0, 3)],
  ["was duplicated", /2 rows waited/, everySecond, [...chain, waiting(5, { parent: "3" })]],
  ["lost a row", /3 follows 1 but is the successor of 2/, everySecond, [served(1), served(3), waiting(4)]],
  ["begins with another row", /begins with 2/, everySecond, [served(2), waiting(3)]],
  [
    "served a time twice",
    /not later/,
    everySecond,
    [served(1), served(2, { time: at(0), plan: at(0), effects: [at(0)] }), waiting(3)],
  ],
  [
    "served a time that is not one of its times",
    /not a time of the rule/,
    everySecond,
    [served(1), served(2, { time: at(0.5), effects: [at(0.5)] }), waiting(3)],
  ],
  ["missed a time with catchup", /missing/, everySecond, [served(1), served(2), waiting(6, late)]],
  [
    "missed a time without catchup",
    /missing/,
    skipping,
    [served(1), served(2), waiting(6, { ...late, created: at(2.5) })],
  ],
  [
    "made up for a time without catchup",
    /made up for/,
    skipping,
    [served(1), served(2), waiting(3, { created: at(5) })],
  ],
  ["had no effect", /wrong effects/, everySecond, [served(1, { effects: [] }), waiting(2)]],
  ["had two effects", /wrong effects/, everySecond, [served(1, { effects: [at(0), at(0)] }), waiting(2)]],
  [
    "failed with an effect",
    /wrong effects/,
    { ...everySecond, fails: () => true },
    [served(1, { state: "FAIL" }), waiting(2)],
  ],
  ["failed without a reason", /wrong state/, everySecond, [served(1, { state: "FAIL", effects: [] }), waiting(2)]],
  ["expired too early", /wrong state/, everySecond, [served(1, { state: "GONE", effects: [] }), waiting(2)]],
  ["ran beside itself", /too many at once/, everySecond, [served(1, { stop: at(5) }), served(2), waiting(3)]],
  [
    "was planned late although it overlaps",
    /planned after the start/,
    { ...everySecond, columns: { catchup: true, overlap: true, max: 0 } },
    [served(1), served(2, { created: at(0.1) }), waiting(3)],
  ],
  ["ended too early", /ended before 7 of its times/, { ...everySecond, ends: true }, chain.slice(0, 3)],
  [
    "had too few runs",
    /3 runs instead of 4/,
    { ...everySecond, ends: true, runs: 4, grid: [at(0), at(1), at(2)] },
    chain.slice(0, 3),
  ],
  ["does not end", /should be over/, { ...everySecond, ends: true }, chain],
  [
    "served a time that its query did not return",
    /not a time of the query/,
    { ...everySecond, grid: [], follows: () => false },
    [served(1), served(2), waiting(3)],
  ],
] satisfies [string, RegExp, Expectation, ScheduledRow[]][]) {
  test(`rejects a schedule that ${what}`, () => assert.match(judgeSchedule(expected, rows).join("\n"), message));
}
