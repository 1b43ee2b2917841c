import { test as nodeTest, type TestContext } from "node:test";

/** One that waits for what never comes ends after this. */
const longestMs = 600_000;

/** A test that fails, rather than hangs, when what it waits for does not come. */
export function test(name: string, work: (context: TestContext) => void | Promise<void>): void {
  void nodeTest(name, { timeout: longestMs }, work);
}
