const { join } = require("node:path");

/**
 * pg-task under PM2: `pm2 start node_modules/pg-task/ecosystem.config.cjs` in the folder of
 * pg_task.json. The first process that is ready leads, the other one stands by and takes over while
 * `pm2 reload pg-task` starts the first one anew.
 */
module.exports = {
  apps: [
    {
      name: "pg-task",
      script: join(__dirname, "dist/src/cli/bin.js"),
      args: "start",
      cwd: process.cwd(),
      // Node's cluster would share out connections that nobody makes.
      exec_mode: "fork",
      instances: 2,
      // A process is started when it leads or stands by; the next one is reloaded only then.
      wait_ready: true,
      listen_timeout: 60_000,
      // Above pg_conf.grace (30 seconds unless set) and the ten seconds that a stop may take beyond.
      kill_timeout: 45_000,
      // What pg-task has started is ended by it, in order; PM2 would signal all of it at once.
      treekill: false,
      // A configuration that is wrong does not get right by trying again.
      stop_exit_codes: [2],
      // PM2's own instruments are none of pg-task's business.
      pmx: false,
    },
  ],
};
