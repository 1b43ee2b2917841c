import type { FileResult } from "./messages.js";
import type { Times } from "./times.js";

/** Number of files in the table of the slowest ones. */
const slowest = 10;

const times = ({ seconds, cpuSeconds }: Times): string =>
  `${seconds.toFixed(1).padStart(6)} s ${cpuSeconds.toFixed(1).padStart(6)} CPU-s`;

/** A line for a file that has ended, and one for each of its failures. */
export function formatResult(name: string, result: FileResult): string {
  const { passed, failures, skipped } = result;
  const parts = [
    `${passed} passed`,
    ...(failures.length === 0 ? [] : [`${failures.length} failed`]),
    ...(skipped.length === 0 ? [] : [`${skipped.length} skipped`]),
  ];
  // The whole errors follow at the end.
  const failed = failures.map(({ name: test, error }) => `\n     ${test}: ${error.split("\n")[0]}`);
  return `${failures.length === 0 ? "ok  " : "FAIL"} ${times(result)}  ${name}  ${parts.join(", ")}${failed.join("")}`;
}

/**
 * Returns what to print after all tests: the skipped tests with their reasons, the slowest files, the failures with the
 * command that runs the file again, and how many tests have passed and failed.
 *
 * @param nameOf returns the name of a file, which is also what `npm test` takes to run it again
 */
export function formatSummary(results: readonly FileResult[], total: Times, nameOf: (file: string) => string): string {
  const skipped = results.flatMap((result) => result.skipped);
  const failures = results.flatMap(({ file, failures: each, diagnostics }) =>
    each.map(({ name, error }) => ({ file: nameOf(file), name, error, diagnostics })),
  );
  const passed = results.reduce((sum, result) => sum + result.passed, 0);
  return [
    ...(skipped.length === 0 ? [] : ["", "skipped", ...skipped.map((each) => `  ${each}`)]),
    "",
    "slowest files (without the server's CPU time)",
    ...results
      .toSorted((a, b) => b.seconds - a.seconds)
      .slice(0, slowest)
      .map((result) => `  ${times(result)}  ${nameOf(result.file)}`),
    `  ${times(total)}  in all, with the server's`,
    ...failures.flatMap(({ file, name, error, diagnostics }) => [
      "",
      `failed: ${name}`,
      ...[...error.split("\n"), ...diagnostics].map((line) => `  ${line}`),
      `  run again: npm test -- ${file}`,
    ]),
    "",
    `${passed} passed, ${failures.length} failed${skipped.length === 0 ? "" : `, ${skipped.length} skipped`}`,
  ].join("\n");
}
