import assert from "node:assert/strict";
import { chmod, readdir, readFile, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { it } from "node:test";
import { startProcess, type ProcessOptions } from "../../support/process.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { cli } from "../../support/cli.js";

const nobody = 65_534;
const notRoot = process.getuid?.() === 0 ? false : "only root can run it as another user";

interface Refusal extends ProcessOptions {
  readonly says: RegExp;
}

/** Asserts that pg-task, in this process, refuses to start, and writes one line to stderr that says why. */
async function refuses({ says, args = ["start"], config, cwd: given, env = {} }: Refusal): Promise<void> {
  const cwd = given ?? (await temporaryFolder());
  if (config !== undefined) await writeFile(join(cwd, "pg_task.json"), JSON.stringify(config));
  const { code, stdout, stderr } = await cli(args, { cwd, env });
  assert.deepEqual([code, stdout], [2, ""], stderr);
  assertOneLine(stderr, says);
}

/** Asserts that pg-task exits with code 2, writes one line to stderr, and logs no error. */
async function exits({ says, ...options }: Refusal): Promise<void> {
  const program = await startProcess(options);
  assert.deepEqual(await program.exit, { code: 2, signal: null }, program.output.stderr);
  assertOneLine(program.output.stderr, says);
  assert.deepEqual(
    program.lines.filter(({ level }) => level === "error"),
    [],
  );
}

function assertOneLine(stderr: string, says: RegExp): void {
  assert.equal(stderr.split("\n").length - 1, 1, stderr);
  assert.match(stderr, says);
  assert.match(stderr, /^pg-task: /);
  assert.doesNotMatch(stderr, /\n\s+at |node:|\.js:/, "no stack trace");
}

it("rejects an unknown key and suggests a similar one", () =>
  refuses({
    config: { "pg_task.slep": 5 },
    says: /pg_task\.json: pg_task\.slep: unknown key.*"pg_task\.sleep"/,
  }));

it("rejects a value of the wrong type, and names what is expected and what was given", () =>
  refuses({
    config: { "pg_task.json": [{ data: "postgres", sleep: "often" }] },
    says: /pg_task\.json\[0\]\.sleep: expected .*, got "often"/,
  }));

it("rejects a file that is not JSON, with line and column", async () => {
  const cwd = await temporaryFolder();
  await writeFile(join(cwd, "pg_task.json"), '[\n  {"data": "a"},\n  {"data": b}\n]\n');
  await refuses({ cwd, says: /pg_task\.json:3:12: not JSON/ });
});

it("rejects a missing file", () =>
  refuses({
    args: ["start", "--config", "nowhere.json"],
    says: /nowhere\.json: cannot read the configuration file: no such file/,
  }));

it("rejects an invalid URL without showing its password", async () => {
  const config = { url: "postgres://user:se/cret@host/db" };
  await refuses({ config, says: /^(?!.*cret).*url: expected a URL like/ });
});

it("names a variable that looks misspelt also for the other commands", async () => {
  const { code, stderr } = await cli(["list"], {
    cwd: await temporaryFolder(),
    env: { DATABSE_URL: "postgres://user:secret@host/db" },
  });
  assert.equal(code, 2);
  assert.match(
    stderr,
    /^pg-task: no server configured: .*; pg-task does not read DATABSE_URL, which contains such a URL/,
  );
  assert.doesNotMatch(stderr, /secret/);
});

it("starts nothing if nothing is configured, and names both ways to go on", async () => {
  const program = await startProcess({ env: { DATABSE_URL: "postgres://user:secret@host/db" } });
  assert.deepEqual(await program.exit, { code: 2, signal: null });
  assert.match(program.output.stderr, /^pg-task: no server configured: .*DATABASE_URL.*pg-task start --embedded/);
  assert.match(program.output.stderr, /pg-task does not read DATABSE_URL/);
  assert.doesNotMatch(program.output.stderr, /secret/);
  assert.equal(program.output.stdout, "");
  assert.deepEqual(await readdir(program.cwd), []);
});

it("rejects --embedded together with a url in the file", () =>
  refuses({
    args: ["start", "--embedded"],
    config: { url: "postgres://user:secret@host/db" },
    says: /pg_task\.json: "url" names a server, and --embedded, which npm start passes, .*run npx pg-task start to use/,
  }));

for (const option of [
  ["--data", "there"],
  ["--port", "5555"],
]) {
  it(`rejects ${option[0]} when a server is configured`, () =>
    refuses({
      args: ["start", ...option],
      env: { DATABASE_URL: "postgres://host/db" },
      says: /--data and --port configure the embedded server: add --embedded/,
    }));
}

for (const data of ["", ".", ".."]) {
  it(`rejects --data ${JSON.stringify(data)}, which contains the working directory`, () =>
    refuses({
      args: ["start", "--embedded", "--data", data],
      says: /expected --data to be a directory of its own/,
    }));
}

const firstFreePort = Number(await readFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", "utf8"));
const portSkip = firstFreePort <= 80 && "here, every user may use port 80";

it("rejects a port that is reserved for root", { skip: portSkip || notRoot }, async () => {
  const says = /the embedded server may not listen on port 80, which the system reserves for root/;
  const folder = await temporaryFolder();
  await chmod(folder, 0o777);
  const args = ["start", "--embedded", "--port", "80", "--data", join(folder, "data")];
  await exits({ args, cwd: "/", env: { HOME: "/" }, user: nobody, says });
  // The server of root runs as another user, who may not use the port either.
  await exits({ args, says });
});

it("rejects data that PostgreSQL refuses, with the reason", async () => {
  const cwd = await temporaryFolder();
  const args = ["start", "--embedded"];
  const first = await startProcess({ args, cwd });
  await first.line("ready");
  await first.end();
  const data = join(cwd, ".pg-task/data");

  const settings = join(data, "postgresql.conf");
  const intact = await readFile(settings, "utf8");
  for (const [line, says] of [
    ["work_mem = lots", /refuses its settings: .*invalid value for parameter "work_mem": "lots"/],
    ["no setting here", /refuses its settings: .*syntax error in file ".*\.pg-task\/data\/postgresql.conf" line 1/],
  ] as const) {
    await writeFile(settings, `${line}\n${intact}`);
    await exits({ args, cwd, says });
  }
  await writeFile(settings, intact);

  await chmod(data, 0o777);
  await exits({ args, cwd, says: /its permissions are 0777, and PostgreSQL wants them to be 0700: chmod 0700 / });
  await chmod(data, 0o700);

  await truncate(join(data, "global/pg_control"));
  await exits({ args, cwd, says: /the data folder .* is damaged: .*pg_control.*; restore it from a backup/ });
});

for (const args of [
  ["start", "--unknown"],
  ["unknown"],
  [],
  ["start", "--port", "0"],
  ["start", "--port", "http"],
  ["start", "surplus"],
]) {
  it(`rejects "pg-task ${args.join(" ")}" as a usage error`, async () => {
    const { code, stdout, stderr } = await cli(args);
    assert.deepEqual([code, stdout], [2, ""]);
    assert.notEqual(stderr, "");
  });
}

for (const args of [["--help"], ["--version"], ["start", "--help"]]) {
  it(`prints the answer to "pg-task ${args.join(" ")}" on standard output`, async () => {
    const { code, stdout, stderr } = await cli(args);
    assert.deepEqual([code, stderr], [0, ""]);
    assert.notEqual(stdout, "");
  });
}
