import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

/** Implements `npm run chaos -- [--seconds N] [--seed N]`. The default is half an hour. */
const { values } = parseArgs({
  options: { seconds: { type: "string", default: "1800" }, seed: { type: "string" } },
});
const test = fileURLToPath(new URL("chaos.test.js", import.meta.url));
const run = spawn(process.execPath, ["--test", "--test-reporter=spec", test], {
  stdio: "inherit",
  env: {
    ...process.env,
    CHAOS_SECONDS: values.seconds,
    ...(values.seed === undefined ? {} : { CHAOS_SEED: values.seed }),
  },
});
run.once("exit", (code) => (process.exitCode = code ?? 1));
