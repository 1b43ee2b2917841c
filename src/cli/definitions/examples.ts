import type { Command } from "commander";

/** Examples of each command, without `pg-task`. A test runs them. */
export const examples: Readonly<Record<string, readonly string[]>> = {
  start: ["start", "start --config /etc/pg-task/pg_task.json", "start --embedded"],
  check: ["check", "check --json"],
  init: ["init"],
  status: ["status", "status --json"],
  list: ["list --limit 20", "list --state FAIL,GONE --text timeout", "list --key 'order 42'", "list --schedules"],
  show: ["show 1", "show --key 'order 42'"],
  next: ["next '0 4 * * 1' --zone Europe/Berlin", "next 'FREQ=MONTHLY;BYDAY=-1FR' --count 3"],
  add: [
    "add 'REFRESH MATERIALIZED VIEW sales'",
    "add 'SELECT 1' --group mail --plan '2030-01-01 08:00+00'",
    "add 'SELECT now()' --rule '0 4 * * *'",
    "add 'CALL ship(42)' --key 'order 42' --if-key-taken skip",
  ],
  stop: ["stop 1", "stop 2 3", "stop --key 'order 42'"],
  retry: ["retry 4", "retry 4 --state FAIL", "retry --state FAIL --yes", "retry --key 'order 42' --state FAIL,GONE"],
  "run-now": ["run-now 5", "run-now --key 'order 42'"],
  delete: ["delete 6"],
  pause: ["pause --group mail --reason 'server moves'", "pause"],
  resume: ["resume --group mail", "resume"],
  "accept-copy": ["accept-copy", "accept-copy --stop-schedules"],
  prune: ["prune --older '30 days' --dry-run", "prune --older '30 days' --yes"],
  groups: ["groups"],
  watch: ["watch", "watch --interval 5"],
  why: ["why 1", "why --key 'order 42'"],
  doctor: ["doctor"],
  completion: ["completion bash"],
  manual: ["manual"],
};

/** Adds the examples to the help of each command. */
export function addExamples(program: Command): void {
  for (const command of program.commands) {
    const lines = examples[command.name()]?.map((example) => `  pg-task ${example}`) ?? [];
    if (lines.length > 0) command.addHelpText("after", `\nExamples:\n${lines.join("\n")}`);
  }
}
