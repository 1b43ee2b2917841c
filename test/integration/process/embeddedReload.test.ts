import assert from "node:assert/strict";
import { it } from "node:test";
import { replaceConfig } from "../../support/configFile.js";
import { connectTo } from "../../support/connectTo.js";
import { startProcess } from "../../support/process.js";
import { waitForRow } from "../../support/waitFor.js";

const own = { data: "postgres" };
const reloaded = "configuration reloaded";

it("handles SIGHUP while its embedded server starts, and reloads afterwards", async () => {
  const program = await startProcess({ args: ["start", "--embedded"], config: [own] });
  await program.line(/^creating the data folder/);
  program.child.kill("SIGHUP");
  await program.line(reloaded);
  const ready = await program.line("ready");
  await replaceConfig(program, [own, { ...own, table: "second" }]);
  await program.line(reloaded, 2);
  const inside = await connectTo(String(ready["url"]));
  await waitForRow(inside, "SELECT FROM pg_class WHERE relname = 'second'");
  await inside.end();
  await replaceConfig(program, { url: String(ready["url"]), "pg_task.json": [own] });
  const rejected = "configuration not reloaded, keeping the old one";
  assert.equal((await program.line(rejected))["code"], "CONFIG_CONFLICT");
  assert.equal((await program.end()).code, 0);
});
