import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { it } from "node:test";
import { promisify } from "node:util";
import { PgTask } from "../support/pgTask.js";
import { createDatabase } from "../support/database.js";
import { startProcess } from "../support/process.js";
import { projectPath, projectText } from "../support/project.js";
import { temporaryFolder } from "../support/temporaryFolder.js";

const page = projectText("docs/library.md");

/** Each example of the page, and what it prints. */
const examples = [...page.matchAll(/^```js\n(.*?)^```\n\n```output\n(.*?)^```$/gms)].map(
  ([, program = "", output = ""]) => ({ program, output }),
);

/** Procedures and functions that the inputs of the examples call. */
const shop = `
  CREATE PROCEDURE refresh_report(n integer) LANGUAGE sql AS 'SELECT';
  CREATE FUNCTION remind(n integer) RETURNS integer LANGUAGE sql AS 'SELECT 1';
  CREATE FUNCTION charge(n integer) RETURNS integer LANGUAGE sql AS 'SELECT 1';
  CREATE FUNCTION resize(n integer) RETURNS integer LANGUAGE sql AS 'SELECT 1';
  CREATE FUNCTION confirm(n integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'`;

it("has an output for every example", () => {
  assert.ok(examples.length >= 8);
  assert.equal(page.match(/^```js$/gm)?.length, examples.length);
});

/** Creates a folder for programs that use the package and these others. */
async function programFolder(names: readonly string[]): Promise<string> {
  const folder = await temporaryFolder();
  await mkdir(join(folder, "node_modules/@types"), { recursive: true });
  await symlink(projectPath(), join(folder, "node_modules", "pg-task"));
  for (const name of names) await symlink(projectPath("node_modules", name), join(folder, "node_modules", name));
  return folder;
}

it("the examples fit strict programs", async () => {
  const folder = await programFolder(["pg", "pino", "@types/pg", "@types/node"]);
  const tutorial = projectText("docs/tutorials/wait-for-result.md");
  const programs = [page, tutorial].flatMap((text) => [...text.matchAll(/^```js\n(.*?)^```$/gms)]);
  assert.ok(programs.length > examples.length);
  for (const [n, [, program = ""]] of programs.entries()) await writeFile(join(folder, `${n + 1}.mjs`), program);
  const compilerOptions = {
    allowJs: true,
    checkJs: true,
    noEmit: true,
    strict: true,
    // JavaScript cannot declare the types of parameters.
    noImplicitAny: false,
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    skipLibCheck: true,
    target: "es2022",
    lib: ["es2023"],
    module: "nodenext",
    types: ["node"],
  };
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["*.mjs"] }));
  const { stdout } = await promisify(execFile)(projectPath("node_modules/.bin/tsc"), ["-p", "."], {
    cwd: folder,
  }).catch((error: unknown) => {
    throw new Error(error instanceof Error && "stdout" in error ? String(error.stdout) : String(error));
  });
  assert.equal(stdout, "");
});

it("names everything that the package exports", () => {
  const index = projectText("src/library/index.ts");
  const lists = [...index.matchAll(/^export (?:type )?\{([^}]*)\}/gms)].map(([, list = ""]) => list);
  const names = lists.flatMap((list) => list.split(",").map((name) => name.replace("type ", "").trim()));
  assert.ok(names.length > 40);
  assert.deepEqual(
    names.filter((name) => name !== "" && !new RegExp(`\`${name}\\b`).test(page)),
    [],
  );
});

for (const [n, { program, output }] of examples.entries()) {
  it(`example ${n + 1} of docs/library.md prints what is shown below it`, async () => {
    const runner = new PgTask();
    const database = await createDatabase();
    await (await database.connect()).query(shop);
    const folder = await programFolder(["pg", "pino"]);
    await writeFile(join(folder, "example.mjs"), program);
    // The examples that only use a TaskClient need a pg-task, except those whose tasks must not have run.
    const needsRunner = !program.includes("start(") && /tasks\.(?:wait|changes)\(/.test(program);
    if (needsRunner) await runner.start({ url: database.url, "pg_task.sleep": 100 });
    const child = await startProcess({
      command: [process.execPath, join(folder, "example.mjs")],
      cwd: folder,
      env: { DATABASE_URL: database.url },
    });
    assert.deepEqual(await child.exit, { code: 0, signal: null }, child.output.stderr);
    assert.equal(child.output.stderr, "");
    const printed = child.output.stdout.split("\n").filter((line) => !line.startsWith('{"level"'));
    assert.equal(printed.join("\n"), output);
    await runner.stop();
  });
}
