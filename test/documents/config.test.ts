import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { cli } from "../support/cli.js";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { startPgTask } from "../support/pgTask.js";
import { configFolder } from "../support/configFile.js";
import { projectPath, projectText } from "../support/project.js";
import { webhookSecret } from "../support/webhookReceiver.js";

const database = await createDatabase("empty");
const files = [
  "README.md",
  ...readdirSync(projectPath("docs"), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".md"))
    .map((file) => `docs/${file}`),
];

/** Returns the fenced code blocks in a language, with the files that contain them. */
function blocks(language: string): { file: string; text: string }[] {
  const fence = new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, "gms");
  return files.flatMap((file) => [...projectText(file).matchAll(fence)].map(([, text = ""]) => ({ file, text })));
}

/**
 * Parses a documented configuration, and replaces its server with the tests' server. The roles and databases that it
 * takes for granted are missing there.
 */
function here(text: string): object {
  const parsed: object = JSON.parse(text);
  return Array.isArray(parsed) ? parsed : { "pg_task.create": true, ...parsed, url: database.url };
}

/** Files for `apply` are no configurations. */
const configurations = blocks("json").filter(({ text }) => !text.includes("pg_task.jobs.schema.json"));

test("the docs contain example configurations", () => {
  assert.ok(configurations.some(({ file }) => file === "README.md"));
  assert.ok(configurations.length >= 4);
});

for (const [index, { file, text }] of configurations.entries()) {
  test(`configuration ${index + 1} in ${file} is valid, and check explains it`, async () => {
    const cwd = await configFolder(here(text));
    const env = {
      HOME: cwd,
      DATABASE_URL: database.url,
      DATABASE1_PASSWORD: "secret",
      MAIL_PASSWORD: "secret",
      SHOP_PASSWORD: "secret",
      TASKS_PASSWORD: "secret",
      PG_TASK_TOKEN: "secret-secret-secret",
      HOOK_SECRET: webhookSecret,
      TASK_HOOK_SECRET: webhookSecret,
    };
    const { code, stdout, stderr } = await cli(["check"], { cwd, env });
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^entries$/m);
    assert.doesNotMatch(stdout + stderr, /secret(?!":"\*\*\*")|whsec_/);
  });
}

const commands = blocks("sh").flatMap(({ file, text }) =>
  text
    .split("\n")
    .flatMap((line) => line.replace(/#.*$/, "").split("&&"))
    .map((command) => ({ file, command: command.trim() }))
    .filter(({ command }) => command !== ""),
);

for (const { file, command } of commands) {
  test(`\`${command}\` in ${file} is a valid command`, async () => {
    const [program, what = "", ...rest] = command.replace(/^(?:[A-Z_]+=(?:"[^"]*"|\S*)\s+)+/, "").split(/\s+/);
    const { scripts, version }: { scripts: Record<string, string>; version: string } = JSON.parse(
      projectText("package.json"),
    );
    if (program === "npx" && what === "pm2") {
      // Another test runs these commands.
      assert.ok(["start", "reload", "sendSignal", "stop"].includes(rest[0] ?? ""), command);
    } else if (program === "npx") {
      assert.equal(what, "pg-task");
      const help = await cli([rest[0] ?? "", "--help"]);
      assert.equal(help.code, 0);
      assert.match(help.stdout, new RegExp(`^Usage: pg-task ${rest[0]}`));
    } else if (program === "curl") {
      // The web server's tests request these paths.
      assert.match(command, /http:\/\/127\.0\.0\.1:8765\/(api\/|health|ready|metrics)/);
    } else if (program === "export") {
      assert.match(command, /^export( [A-Z_]+='[^']*')+$/);
    } else if (program === "bash") {
      assert.ok(existsSync(projectPath(what)));
    } else {
      assert.equal(program, "npm");
      const script = what === "run" ? rest[0] : what;
      const driver = command === "npm install pg";
      const own = command === `npm install ./pg-task-${version}.tgz` || script === "ci";
      const sdk = what === "install" && rest.every((name) => /^@opentelemetry\/[a-z-]+$/.test(name));
      assert.ok(own || driver || sdk || scripts[script ?? ""] !== undefined, command);
    }
  });
}

for (const [index, { text }] of configurations.filter(({ file }) => file === "README.md").entries()) {
  test(`the README's configuration ${index + 1} starts`, async () => {
    const shop = text.replaceAll(
      '"data": "shop"',
      `"data": "${database.target.database}", "user": "${database.target.user}"`,
    );
    const pgTask = await startPgTask(here(shop), { env: { SHOP_PASSWORD: "unasked" } });
    await pgTask.line("serving table");
    await pgTask.stop();
  });
}
