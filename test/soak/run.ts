import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { selectVersions, installVersions, lockedVersions, bundledServer } from "../matrix/versions.js";

/**
 * Implements `npm run soak -- [--seconds N] [--seed N] [--postgres 12,18]`. Runs the soak test on each of these
 * versions of PostgreSQL in turn, by default only on pg-task's own, for an hour by default.
 */
const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "3600" },
    seed: { type: "string" },
    postgres: { type: "string" },
  },
});
const test = fileURLToPath(new URL("soak.test.js", import.meta.url));
const own = await bundledServer();
const servers = [...(await lockedVersions("postgres")), own];
const wanted = values.postgres === undefined ? [own] : selectVersions(servers, values.postgres);
await installVersions(wanted.filter((each) => each !== own));

for (const { folder, version } of wanted) {
  process.stdout.write(`── PostgreSQL ${version}\n`);
  const { TEST_POSTGRES: _, ...env } = process.env;
  const run = spawn(process.execPath, ["--test", "--test-reporter=spec", test], {
    stdio: "inherit",
    env: {
      ...env,
      SOAK_SECONDS: values.seconds,
      ...(values.seed === undefined ? {} : { SOAK_SEED: values.seed }),
      ...(folder === "" ? {} : { TEST_POSTGRES: folder }),
    },
  });
  const code = await new Promise<number>((resolve) => {
    run.once("exit", (status) => resolve(status ?? 1));
  });
  if (code !== 0) process.exitCode = 1;
}
