import { test as nodeTest, type TestContext } from "node:test";

/**
 * No test takes more than a minute on a machine that is not busy; one that waits for what never comes
 * ends after this.
 */
const longestMs = 120_000;

/** A test that fails, rather than hangs, when what it waits for does not come. */
export function test(name: string, work: (context: TestContext) => void | Promise<void>): void {
  void nodeTest(name, { timeout: longestMs }, work);
}
