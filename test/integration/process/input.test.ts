import assert from "node:assert/strict";
import { chmod, readdir, readFile, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { it } from "node:test";
import { cli } from "../../support/cli.js";
import { configFolder } from "../../support/configFile.js";
import { startProcess, type ProcessOptions } from "../../support/process.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const nobody = 65_534;
const notRoot = process.getuid?.() === 0 ? false : "only root can run it as another user";

/** Asserts that this is one line, which says why pg-task does not start. */
function assertOneLine(stderr: string, says: RegExp): void {
  assert.equal(stderr.split("\n").length - 1, 1, stderr);
  assert.match(stderr, says);
  assert.match(stderr, /^pg-task: /);
  assert.doesNotMatch(stderr, /\n\s+at |node:|\.js:/, "no stack trace");
}

/**
 * What pg-task refuses, and what it says. Other mistakes in the file are reported in the same way, and their messages are
 * tested in unit/shared/config/loadConfiguration.
 */
const refusals: readonly (readonly [
  what: string,
  says: RegExp,
  config: unknown,
  args?: readonly string[],
  env?: Readonly<Record<string, string>>,
])[] = [
  [
    "an unknown key, and suggests a similar one",
    /pg_task\.json: pg_task\.slep: unknown key.*"pg_task\.sleep"/,
    { "pg_task.slep": 5 },
  ],
  [
    "a missing file",
    /nowhere\.json: cannot read the configuration file: no such file/,
    {},
    ["start", "--config", "nowhere.json"],
  ],
  [
    "--embedded together with a url in the file",
    /pg_task\.json: "url" names a server, and --embedded, which npm start passes, .*run npx pg-task start to use/,
    { url: "postgres://user:secret@host/db" },
    ["start", "--embedded"],
  ],
  ...[
    ["--data", "there"],
    ["--port", "5555"],
  ].map(
    (option) =>
      [
        `${option[0]} when a server is configured`,
        /--data and --port configure the embedded server: add --embedded/,
        {},
        ["start", ...option],
        { DATABASE_URL: "postgres://host/db" },
      ] as const,
  ),
  ...["", ".", ".."].map(
    (data) =>
      [
        `--data ${JSON.stringify(data)}, which contains the working directory`,
        /expected --data to be a directory of its own/,
        {},
        ["start", "--embedded", "--data", data],
      ] as const,
  ),
];

for (const [what, says, config, args = ["start"], env = {}] of refusals) {
  it(`rejects ${what}`, async () => {
    const { code, stdout, stderr } = await cli(args, { cwd: await configFolder(config), env });
    assert.deepEqual([code, stdout], [2, ""], stderr);
    assertOneLine(stderr, says);
  });
}

it("starts nothing if nothing is configured, and names both ways to go on and a variable that looks misspelt", async () => {
  const env = { DATABSE_URL: "postgres://user:secret@host/db" };
  const program = await startProcess({ env });
  assert.deepEqual(await program.exit, { code: 2, signal: null });
  assert.match(program.output.stderr, /^pg-task: no server configured: .*DATABASE_URL.*pg-task start --embedded/);
  assert.equal(program.output.stdout, "");
  assert.deepEqual(await readdir(program.cwd), []);
  const listed = await cli(["list"], { cwd: program.cwd, env });
  assert.equal(listed.code, 2);
  for (const stderr of [program.output.stderr, listed.stderr]) {
    assert.match(stderr, /^pg-task: no server configured: .*; pg-task does not read DATABSE_URL, which contains such/);
    assert.doesNotMatch(stderr, /secret/);
  }
});

/** Asserts that pg-task exits with code 2, writes one line to stderr, and logs no error. */
async function exits(says: RegExp, options: ProcessOptions): Promise<void> {
  const program = await startProcess(options);
  assert.deepEqual(await program.exit, { code: 2, signal: null }, program.output.stderr);
  assertOneLine(program.output.stderr, says);
  assert.deepEqual(
    program.lines.filter(({ level }) => level === "error"),
    [],
  );
}

const firstFreePort = Number(await readFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", "utf8"));
const portSkip = firstFreePort <= 80 && "here, every user may use port 80";

it("rejects a port that is reserved for root", { skip: portSkip || notRoot }, async () => {
  const says = /the embedded server may not listen on port 80, which the system reserves for root/;
  const folder = await temporaryFolder();
  await chmod(folder, 0o777);
  const args = ["start", "--embedded", "--port", "80", "--data", join(folder, "data")];
  await exits(says, { args, cwd: "/", env: { HOME: "/" }, user: nobody });
  // The server of root runs as another user, who may not use the port either.
  await exits(says, { args });
});

it("rejects data that PostgreSQL refuses, with the reason", async () => {
  const cwd = await temporaryFolder();
  const args = ["start", "--embedded"];
  const first = await startProcess({ args, cwd, until: "ready" });
  await first.end();
  const data = join(cwd, ".pg-task/data");

  const settings = join(data, "postgresql.conf");
  const intact = await readFile(settings, "utf8");
  for (const [line, says] of [
    ["work_mem = lots", /refuses its settings: .*invalid value for parameter "work_mem": "lots"/],
    ["no setting here", /refuses its settings: .*syntax error in file ".*\.pg-task\/data\/postgresql.conf" line 1/],
  ] as const) {
    await writeFile(settings, `${line}\n${intact}`);
    await exits(says, { args, cwd });
  }
  await writeFile(settings, intact);

  await chmod(data, 0o777);
  await exits(/its permissions are 0777, and PostgreSQL wants them to be 0700: chmod 0700 /, { args, cwd });
  await chmod(data, 0o700);

  await truncate(join(data, "global/pg_control"));
  await exits(/the data folder .* is damaged: .*pg_control.*; restore it from a backup/, { args, cwd });
});

for (const line of ["start --unknown", "unknown", "", "start --port 0", "start --port http", "start surplus"]) {
  it(`rejects "pg-task ${line}" as a usage error`, async () => {
    const { code, stdout, stderr } = await cli(line.split(" ").filter(Boolean));
    assert.deepEqual([code, stdout], [2, ""]);
    assert.notEqual(stderr, "");
  });
}

for (const line of ["--help", "--version", "start --help"]) {
  it(`prints the answer to "pg-task ${line}" on standard output`, async () => {
    const { code, stdout, stderr } = await cli(line.split(" "));
    assert.deepEqual([code, stderr], [0, ""]);
    assert.notEqual(stdout, "");
  });
}
