const path = require("node:path");

/**
 * pg-task under PM2. Run `pm2 start node_modules/pg-task/ecosystem.config.cjs` in the folder of
 * pg_task.json. Of the two processes, one leads and the other stands by. The standby takes over while
 * `pm2 reload pg-task` restarts the leader.
 */
module.exports = {
  apps: [
    {
      name: "pg-task",
      script: path.join(__dirname, "dist/src/cli/bin.js"),
      args: "start",
      cwd: process.cwd(),
      // Cluster mode would only distribute incoming connections, which pg-task does not need.
      exec_mode: "fork",
      instances: 2,
      // PM2 waits until a process leads or stands by before it reloads the next one.
      wait_ready: true,
      listen_timeout: 60_000,
      // More than pg_conf.grace (30 seconds by default) plus the ten seconds that a stop can take longer.
      kill_timeout: 45_000,
      // pg-task ends its child processes itself, in the right order. PM2 would signal all of them at once.
      treekill: false,
      // Exit code 2 means that the configuration is invalid. A restart would not help.
      stop_exit_codes: [2],
      // Turns off PM2's instrumentation of the process, which pg-task does not need.
      pmx: false,
    },
  ],
};
