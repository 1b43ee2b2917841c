import type { TestEvent } from "node:test/reporters";
import { inspect } from "node:util";
import type { FileResult, FromWorker } from "./messages.js";
import { timesOfFile } from "./times.js";

/** Tells the runner how each file of a worker has ended. Node.js loads it as the worker's test reporter. */
// oxlint-disable-next-line require-yield -- what a reporter yields is printed
export default async function* report(events: AsyncIterable<TestEvent>): AsyncGenerator<never, void> {
  let file = new FileReport();
  for await (const event of events) {
    // A file is a suite of its own, whose end is reported after those of its tests.
    if (event.type === "test:dequeue" && event.data.nesting > 0) say({ begun: event.data.name });
    if (event.type === "test:start" && event.data.nesting === 0) file = new FileReport();
    if (event.type === "test:diagnostic" && event.data.nesting > 0) file.diagnostics.push(event.data.message);
    if (event.type !== "test:pass" && event.type !== "test:fail") continue;
    file.add(event);
    if (event.data.nesting > 0) continue;
    say(file.end(event.data.name));
  }
}

const say = (message: FromWorker): void => void process.send?.(message);

class FileReport {
  readonly diagnostics: string[] = [];
  readonly #failures: { name: string; error: string; nesting: number }[] = [];
  readonly #skipped: string[] = [];
  #passed = 0;

  add({ type, data }: Extract<TestEvent, { type: "test:pass" | "test:fail" }>): void {
    const { name, nesting, skip, details } = data;
    // The first parent that ends after a test is the innermost one.
    for (const failure of this.#failures) {
      if (nesting === 0 || failure.nesting <= nesting) continue;
      failure.name = `${name} › ${failure.name}`;
      failure.nesting = nesting;
    }
    if (type === "test:fail") {
      const { error } = data.details;
      if (!("failureType" in error) || error.failureType !== "subtestsFailed") {
        this.#failures.push({ name, error: inspect(error.cause ?? error), nesting });
      }
    } else if (skip !== undefined) this.#skipped.push(typeof skip === "string" ? `${name}: ${skip}` : name);
    else if (details.type !== "suite") this.#passed += 1;
  }

  end(file: string): FileResult {
    return {
      file,
      passed: this.#passed,
      failures: this.#failures.map(({ name, error }) => ({ name, error })),
      skipped: this.#skipped,
      diagnostics: this.diagnostics,
      ...timesOfFile(),
    };
  }
}
