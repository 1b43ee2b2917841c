import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { it } from "node:test";
import { pathToFileURL } from "node:url";
import { createDatabase } from "../../support/database.js";
import { startProcess } from "../../support/process.js";
import { projectPath } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const library = pathToFileURL(projectPath("dist/src/library/index.js")).href;
const { url } = await createDatabase();

it("an error of a listener is an uncaught exception, and does not disturb pg-task", async () => {
  const folder = await temporaryFolder();
  const file = join(folder, "own.mjs");
  await writeFile(
    file,
    `import { start } from ${JSON.stringify(library)};
     const seen = [];
     process.on("uncaughtException", (error) => seen.push(error.message));
     const pgTask = await start({ url: ${JSON.stringify(url)}, logger: false });
     pgTask.once("role", () => { throw new Error("mine"); });
     await pgTask.stop();
     console.log(JSON.stringify({ msg: "after", seen, error: await pgTask.stopped }));`,
  );
  const child = await startProcess({ command: [process.execPath, file], cwd: folder });
  await child.stopped();
  const { seen, error } = await child.line("after");
  assert.deepEqual({ seen, error }, { seen: ["mine"], error: null });
});

it("handles signals if it is asked to", async () => {
  const folder = await temporaryFolder();
  const file = join(folder, "own.mjs");
  await writeFile(
    file,
    `import { start } from ${JSON.stringify(library)};
     const pgTask = await start({ url: ${JSON.stringify(url)}, signals: true });
     await pgTask.stopped;
     console.log(JSON.stringify({ msg: "after" }));`,
  );
  const child = await startProcess({ command: [process.execPath, file], cwd: folder, until: "ready" });
  child.child.kill("SIGHUP");
  await child.line("configuration reloaded");
  assert.deepEqual(await child.end("SIGTERM"), { code: 0, signal: null });
  assert.equal(child.linesMatching("stopped").length, 1);
  assert.equal(child.linesMatching("after").length, 1);
});
