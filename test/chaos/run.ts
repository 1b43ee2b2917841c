import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

/** Implements `npm run chaos -- [--seconds N] [--seed N] [--only FAULT] [--asleep] [--users] [--shares] [--remote]`. The default is half an hour. */
const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "1800" },
    seed: { type: "string" },
    only: { type: "string" },
    asleep: { type: "boolean" },
    users: { type: "boolean" },
    shares: { type: "boolean" },
    remote: { type: "boolean" },
  },
});
const test = fileURLToPath(new URL("chaos.test.js", import.meta.url));
const run = spawn(process.execPath, ["--test", "--test-reporter=spec", test], {
  stdio: "inherit",
  env: {
    ...process.env,
    CHAOS_SECONDS: values.seconds,
    ...(values.only === undefined ? {} : { CHAOS_ONLY: values.only }),
    ...(values.asleep === true ? { CHAOS_ASLEEP: "1" } : {}),
    ...(values.users === true ? { CHAOS_USERS: "1" } : {}),
    ...(values.shares === true ? { CHAOS_SHARES: "1" } : {}),
    ...(values.remote === true ? { CHAOS_REMOTE: "1" } : {}),
    ...(values.seed === undefined ? {} : { CHAOS_SEED: values.seed }),
  },
});
run.once("exit", (code) => (process.exitCode = code ?? 1));
