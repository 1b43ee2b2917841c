import assert from "node:assert/strict";
import { test } from "node:test";
import { judgeOptions, type OptionTask, type Run } from "./optionJudge.js";

const second = 1e6;
const base = 1_800_000_000 * second;
const at = (seconds: number): number => base + seconds * second;

/** An effect that was committed 0.1 s after its run had begun. */
const run = (seconds: number, more: Partial<Run> = {}): Run => ({
  begun: at(seconds),
  ended: at(seconds + 0.1),
  attempt: 0,
  given: null,
  ...more,
});

const touched = (what: string, seconds: number): OptionTask["touches"] => [{ what, at: at(seconds) }];

/** A task that ran in the second of its id. */
function done(id: number, more: Partial<OptionTask> = {}): OptionTask {
  return {
    id: String(id),
    group: "group",
    max: 0,
    key: null,
    after: null,
    upon: null,
    retry: 0,
    fails: 0,
    isRetried: true,
    args: null,
    collected: null,
    vanishes: false,
    repeats: false,
    gap: null,
    state: "DONE",
    error: null,
    attempt: 0,
    keptErrors: more.attempt ?? 0,
    stop: at(id + 0.1),
    touches: [],
    runs: [run(id)],
    starts: [],
    ...more,
  };
}

const without = (state: string | null, id: number, more: Partial<OptionTask> = {}): OptionTask =>
  done(id, { state, runs: [], ...more });

/** A task whose last try failed. */
const failed = (id: number, more: Partial<OptionTask> = {}): OptionTask =>
  without("FAIL", id, { fails: 1, error: "ERROR:  planned failure", ...more });

const waits = (id: number, more: Partial<OptionTask> = {}): OptionTask => done(id, { after: ["1"], ...more });

const refused = (id: string, state: string): Partial<OptionTask> => ({
  state: "GONE",
  runs: [],
  error: `ERROR:  task ${id}, which it waits for, is ${state}`,
});

const replaced = (id: number): string => `ERROR:  task ${id} with the same key takes its place`;

const starting = (id: number, ...starts: number[]): OptionTask =>
  done(id, { gap: second, runs: [], starts: starts.map(at) });

const accepted: readonly (readonly [string, ...OptionTask[]])[] = [
  ["a task with its effect", done(1)],
  [
    "a task that succeeded at its third try",
    done(1, { retry: 2, fails: 2, attempt: 2, runs: [run(1, { attempt: 2 })] }),
  ],
  ["a task that failed at each try", failed(1, { retry: 2, fails: 4, attempt: 2 })],
  ["a task with an error that is not retried", failed(1, { retry: 2, isRetried: false })],
  [
    "a failed try whose key another task waits with",
    failed(1, {
      retry: 2,
      key: "k",
      error: "ERROR:  planned failure\nDETAIL:  Task 2 with the same key takes its place.",
    }),
    done(2, { key: "k" }),
  ],
  ["a task that was stopped", without("STOP", 1, { touches: touched("stop", 1) })],
  ["a task that was deleted after its effect", done(1, { state: null, touches: touched("delete", 1) })],
  ["a task that ran again for its user", done(1, { runs: [run(1), run(2)], touches: touched("run again", 1.5) })],
  ["a task whose row vanished", done(1, { state: null, vanishes: true })],
  ["a task after another", done(1), waits(2)],
  ["a task after a failed one, upon end", failed(1), waits(2, { upon: "end" })],
  ["a task after a failed one, upon fail", failed(1), waits(2, { upon: "fail" })],
  ["a task that was refused", failed(1), waits(2, refused("1", "FAIL"))],
  [
    "a task that was refused because of a deleted one",
    without(null, 1, { touches: touched("delete", 1) }),
    waits(2, refused("1", "deleted")),
  ],
  ["a task that waited for a failure in vain", done(1), without("GONE", 2, { after: ["1"], upon: "fail" })],
  [
    "a task after one that was left out and deleted",
    without(null, 1, { vanishes: true, upon: "fail", after: ["0"] }),
    waits(2),
    waits(3, refused("1", "GONE")),
  ],
  ["a task that was let go", failed(1), waits(2, { touches: touched("let go", 1) })],
  [
    "an interrupted task whose key another one waits with",
    without("GONE", 1, { key: "k", error: replaced(2) }),
    done(2, { key: "k" }),
  ],
  ["two runs of a key, one after the other", done(1, { key: "k" }), done(2, { key: "k" })],
  ["runs beside each other", done(1, { max: 1 }), done(2, { max: 1, runs: [run(1.05)] })],
  ["values that were collected", done(1, { collected: [1, 2], runs: [run(1, { given: [2, 1] })] })],
  ["starts that are a gap apart", starting(1, 1), starting(2, 2), starting(3, 3.2)],
  ["a stopped schedule", done(1, { key: "k", repeats: true }), without("STOP", 2, { key: "k", repeats: true })],
];

for (const [what, ...tasks] of accepted) {
  test(`accepts ${what}`, () => assert.deepEqual(judgeOptions(tasks), []));
}

const rejected: readonly (readonly [string, RegExp, ...OptionTask[]])[] = [
  ["a task without its effect", /^DONE with 0 effects/, without("DONE", 1)],
  ["a task with two effects", /^DONE with 2 effects/, done(1, { runs: [run(1), run(2)] })],
  ["a row that is gone", /^lost with 1 effects/, done(1, { state: null })],
  ["a row that vanished without its effect", /^lost with 0 effects/, without(null, 1, { vanishes: true })],
  [
    "a deleted task with two effects",
    /^deleted with 2/,
    done(1, { state: null, runs: [run(1), run(2)], touches: touched("delete", 2) }),
  ],
  ["a task that nobody has stopped", /^STOP with 0/, without("STOP", 1)],
  ["a stopped task with an effect", /^STOP with 1/, done(1, { state: "STOP", touches: touched("stop", 1) })],
  ["a failed task with an effect", /^FAIL with 1/, failed(1, { runs: [run(1, { attempt: 1 })] })],
  ["a task that has not ended", /^PLAN with 0/, without("PLAN", 1)],
  [
    "a task that succeeded too early",
    /wrong attempt/,
    done(1, { retry: 2, fails: 2, attempt: 1, runs: [run(1, { attempt: 1 })] }),
  ],
  ["too many attempts", /more attempts/, failed(1, { retry: 1, fails: 4, attempt: 2 })],
  ["a lost error", /not the errors/, failed(1, { retry: 2, fails: 4, attempt: 2, keptErrors: 1 })],
  ["too few attempts", /tries left/, failed(1, { retry: 2, fails: 4, attempt: 1 })],
  [
    "an attempt after an error that is not retried",
    /tries left/,
    failed(1, { retry: 2, fails: 2, attempt: 1, isRetried: false }),
  ],
  ["a failure of another kind", /failed without a reason/, failed(1, { error: "ERROR:  division by zero" })],
  [
    "a key that ran twice and was rolled back",
    /failed without a reason/,
    failed(1, { key: "k", error: "ERROR:  key runs twice, in task 2 as well" }),
  ],
  [
    "a failed try that another key replaced",
    /tries left/,
    failed(1, {
      retry: 2,
      key: "k",
      error: "ERROR:  planned failure\nDETAIL:  Task 2 with the same key takes its place.",
    }),
    done(2, { key: "other" }),
  ],
  ["a task that ran after a failed one", /ran although others are FAIL/, failed(1), waits(2)],
  [
    "a task that ran upon a failure that did not come",
    /ran although others are DONE/,
    done(1),
    waits(2, { upon: "fail" }),
  ],
  ["a task that ran too early", /ran before 1 had ended/, done(1), waits(2, { runs: [run(1.05)] })],
  [
    "a task that ran before the last try of another",
    /ran before 1 had ended/,
    failed(1, { stop: at(5) }),
    waits(2, { upon: "end" }),
  ],
  [
    "a task that ran before the stop of another",
    /ran before 1 had ended/,
    without("STOP", 1, { touches: touched("stop", 5) }),
    waits(2, { upon: "end" }),
  ],
  ["a task that was refused although the other is DONE", /wrong reason/, done(1), waits(2, refused("1", "FAIL"))],
  [
    "a task that was refused because of a stranger",
    /wrong reason/,
    failed(1),
    failed(3),
    waits(4, refused("3", "FAIL")),
  ],
  [
    "a task that was refused although it waits for any end",
    /wrong reason/,
    failed(1),
    waits(2, { ...refused("1", "FAIL"), upon: "end" }),
  ],
  [
    "a task that was left out although another failed",
    /gone without an error/,
    failed(1),
    without("GONE", 2, { after: ["1"], upon: "fail" }),
  ],
  ["a task that is gone", /gone without a reason/, without("GONE", 1, { error: "ERROR:  task not active" })],
  [
    "a task that another key replaced",
    /gone without a reason/,
    without("GONE", 1, { key: "k", error: replaced(2) }),
    done(2, { key: "other" }),
  ],
  [
    "a key that ran twice at once",
    /a key ran twice/,
    done(1, { key: "k" }),
    done(2, { key: "k", group: "other", runs: [run(1.05)] }),
  ],
  [
    "a key that ran beside a long run",
    /a key ran twice/,
    done(1, { key: "k", max: 2, runs: [run(1, { ended: at(4) })] }),
    done(2, { key: "k", group: "2" }),
    done(3, { key: "k", group: "3" }),
  ],
  ["a crowded group", /too many at once/, done(1, { max: 1 }), done(2, { runs: [run(1.05)] })],
  ["wrong values", /wrong values/, done(1, { args: [1] })],
  [
    "a value that was lost",
    /wrong values were collected/,
    done(1, { collected: [1, 2], runs: [run(1, { given: [1] })] }),
  ],
  [
    "a value that was collected twice",
    /wrong values were collected/,
    done(1, { collected: [1], runs: [run(1, { given: [1, 1] })] }),
  ],
  ["starts that are too near", /started 500000 µs after/, starting(1, 1), starting(2, 1.5)],
  [
    "a start too near to that of a run that was repeated",
    /started 500000 µs after/,
    starting(1, 1, 3),
    starting(2, 3.5),
  ],
  ["a schedule that has ended", /^0 rows carried/, done(1, { key: "k", repeats: true })],
  [
    "a schedule that was doubled",
    /^2 rows carried/,
    ...[1, 2].map((id) => without("STOP", id, { key: "k", repeats: true })),
  ],
];

for (const [what, message, ...tasks] of rejected) {
  test(`rejects ${what}`, () => assert.match(judgeOptions(tasks).join("\n"), message));
}
