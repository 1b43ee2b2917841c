import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { after, it } from "node:test";
import { promisify } from "node:util";
import { parameters } from "../../src/shared/config/parameterTable.js";
import { exitCodes } from "../../src/shared/errorCodes.js";
import { projectPath } from "../support/project.js";

const run = promisify(execFile);
const root = projectPath();
const folder = await mkdtemp(join(tmpdir(), "pg-task-examples-"));
after(() => rm(folder, { recursive: true, force: true }));

const analyze = await run("systemd-analyze", ["--version"]).then(
  () => true,
  () => false,
);
const skip = analyze ? false : "systemd-analyze is not installed here";

const read = (file: string): string => readFileSync(join(root, file), "utf8");
const unit = read("examples/pg-task.service");
const dockerfile = read("examples/Dockerfile").replaceAll("\\\n", "");

interface Pm2App {
  readonly script: string;
  readonly kill_timeout: number;
  readonly treekill: boolean;
  readonly exec_mode: string;
  readonly wait_ready: boolean;
  readonly instances: number;
  readonly stop_exit_codes: readonly number[];
}
const ecosystem: { apps: readonly Pm2App[] } = createRequire(import.meta.url)(join(root, "ecosystem.config.cjs"));

const graceMs = Number(parameters.find(({ name }) => name === "pg_conf.grace")?.default);
/** Longest time that a stop may take: ten seconds more than the grace period. */
const maxStopMs = graceMs + 10_000;
const setting = (name: string): string => new RegExp(`^${name}=(.*)$`, "m").exec(unit)?.[1] ?? "";

it("every example allows a stop with the default grace period", () => {
  const [app] = ecosystem.apps;
  assert.ok(app && app.kill_timeout > maxStopMs);
  assert.ok(Number.parseInt(setting("TimeoutStopSec"), 10) * 1000 > maxStopMs);
  const docker = /--stop-timeout (\d+)/.exec(dockerfile)?.[1];
  assert.ok(Number(docker) * 1000 > maxStopMs);
});

it("no example restarts endlessly with an invalid configuration", () => {
  assert.deepEqual(ecosystem.apps[0]?.stop_exit_codes, [exitCodes.CONFIG]);
  assert.equal(setting("RestartPreventExitStatus"), String(exitCodes.CONFIG));
});

it("the PM2 example names an existing program and leaves child processes to it", () => {
  const [app] = ecosystem.apps;
  assert.ok(app && existsSync(app.script));
  const { exec_mode, treekill, wait_ready, instances } = app;
  assert.deepEqual(
    { exec_mode, treekill, wait_ready, instances },
    { exec_mode: "fork", treekill: false, wait_ready: true, instances: 2 },
  );
});

it("systemd accepts the unit without a warning", { skip }, async () => {
  // The path of Node.js replaces that of the program, because the program need not be installed.
  const text = unit.replace(/^ExecStart=\S+/m, `ExecStart=${process.execPath}`);
  assert.notEqual(text, unit);
  const file = join(folder, "pg-task.service");
  await writeFile(file, text);
  const { stdout, stderr } = await run("systemd-analyze", ["verify", "--man=no", file]);
  assert.equal(stdout + stderr, "");
});

/** Returns the paths of the project that a path of the Dockerfile stands for. It may end in a pattern like `*.css`. */
function expand(path: string): string[] {
  const relative = path.replace(/^\/build\//, "");
  const [, parent, ending = ""] = /^(.*)\/\*(\.\w+)$/.exec(relative) ?? [];
  if (parent === undefined) return [relative];
  const names = readdirSync(join(root, parent)).filter((name) => name.endsWith(ending));
  assert.ok(names.length > 0, path);
  return names.map((name) => `${parent}/${name}`);
}

/** Sources (paths in the project) and destination of each COPY, with the stage that it copies from. */
const copies = [...dockerfile.matchAll(/^COPY (?:--from=(\S+) )?(.+)$/gm)].map(([, from, paths = ""]) => {
  const words = paths.split(" ");
  const to = words.pop() ?? "";
  return { from, sources: words.flatMap(expand), to };
});

it("the Dockerfile copies only existing files that are not ignored", () => {
  assert.ok(copies.length > 3);
  const ignored = read("examples/Dockerfile.dockerignore").split("\n");
  for (const { from, sources } of copies) {
    for (const source of sources) {
      assert.ok(existsSync(join(root, source)), source);
      if (from === undefined) assert.ok(ignored.includes(`!${source}`), `${source} is ignored`);
    }
  }
});

it("the image runs as an ordinary user and has a health check", () => {
  const last = dockerfile.slice(dockerfile.lastIndexOf("\nFROM "));
  assert.match(last, /^USER (?!root)\w+$/m);
  assert.match(last, /^HEALTHCHECK .*\/?health/im);
  assert.match(last, /^STOPSIGNAL SIGTERM$/m);
});

/** Copies what the stage gets. A destination that ends in a slash is a folder, as in Docker. */
async function copyTo(stage: string, source: string, to: string): Promise<void> {
  const target = to.endsWith("/") ? join(stage, to, basename(source)) : join(stage, to);
  await mkdir(dirname(target), { recursive: true });
  await cp(source, target, { recursive: true });
}

it("builds and starts from only the files in the image", async () => {
  const build = join(folder, "build");
  const app = join(folder, "app");
  await Promise.all([mkdir(build), mkdir(app)]);
  for (const where of [build, app]) await symlink(join(root, "node_modules"), join(where, "node_modules"));
  for (const { from, sources, to } of copies)
    if (from === undefined) for (const source of sources) await copyTo(build, join(root, source), to);
  // `npm ci` runs this script after the installation.
  await run("npm", ["run", "prepublish"], { cwd: build });
  for (const { from, sources, to } of copies) {
    if (from === undefined || sources.includes("node_modules")) continue;
    for (const source of sources) await copyTo(app, join(build, source), to);
  }
  const entry = /^ENTRYPOINT \["node", "\/app\/(.+)"\]$/m.exec(dockerfile)?.[1] ?? "";
  // The table's files are read when the program starts, and the page's files when the page does.
  const config = join(folder, "pg_task.json");
  await writeFile(config, JSON.stringify({ url: "postgresql://127.0.0.1:1/none", "pg_http.listen": "127.0.0.1:0" }));
  const program = spawn(process.execPath, [join(app, entry), "start", "--config", config], { stdio: "pipe" });
  const exit = once(program, "exit");
  let page: Response | null = null;
  try {
    for await (const line of createInterface({ input: program.stdout })) {
      const { msg, url }: { msg?: string; url?: string } = JSON.parse(line);
      if (msg !== "page" || url === undefined) continue;
      page = await fetch(new URL("/page/style.css", url));
      break;
    }
  } finally {
    program.kill("SIGTERM");
  }
  assert.equal(page?.status, 200);
  assert.deepEqual(await exit, [0, null]);
});
