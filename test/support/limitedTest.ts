import { test as nodeTest, type TestContext } from "node:test";

/** Time limit of a test, in ms. */
const timeoutMs = 240_000;

/** Defines a test with a time limit, so that it fails instead of hanging if an expected event does not occur. */
export function test(name: string, work: (context: TestContext) => void | Promise<void>): void {
  void nodeTest(name, { timeout: timeoutMs }, work);
}
