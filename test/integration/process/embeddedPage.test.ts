import assert from "node:assert/strict";
import { it } from "node:test";
import { startProcess } from "../../support/process.js";
import { Web } from "../../support/web.js";

it("the web server is on with the embedded server, on loopback, with a random token", async () => {
  const program = await startProcess({ args: ["start", "--embedded"] });
  const web = await Web.connect(program, "");
  await program.line("ready");
  assert.equal(new URL(web.url).hostname, "127.0.0.1");
  assert.ok(web.token.length >= 20, web.token);
  assert.equal((await web.requestWithoutToken("/api/tables")).status, 401);
  assert.equal((await web.request("/api/tables")).status, 200);
  assert.equal((await program.end()).code, 0);
});
