import { mock, suite } from "node:test";
import { pathToFileURL } from "node:url";
import type { ToWorker } from "./messages.js";
import { startFile } from "./times.js";

/*
 * Runs test files in this process, one after another, as the runner asks for them. Loading the code and compiling it
 * takes longer than most files run, so it is done once. Each file is a suite: what it registers with `after` runs at its
 * end. The reporter tells the runner how it has ended.
 */

const environment = { ...process.env };

/** Undoes what a file has replaced and not restored, so that it cannot harm the next one. */
function restore(): void {
  mock.reset();
  for (const name of Object.keys(process.env)) if (!(name in environment)) delete process.env[name];
  Object.assign(process.env, environment);
}

process.on("message", ({ file }: ToWorker) => {
  // Without the channel, nothing keeps the process from ending.
  if (file === null) {
    process.disconnect();
    return;
  }
  restore();
  startFile();
  void suite(file, () => import(pathToFileURL(file).href));
});
