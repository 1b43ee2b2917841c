import { EventEmitter as NodeEventEmitter } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { EventEmitter } from "eventemitter3";
import type { ClusterRole, ClusterView, ManagerView } from "../../src/shared/clusterStatus.js";
import { loadConfiguration } from "../../src/shared/config/loadConfiguration.js";
import { createLog } from "../../src/shared/log.js";
import type { SharedPorts } from "../../src/shared/sharedPorts.js";
import { noCounts, noDurations } from "../../src/shared/statistics.js";
import type { HttpLimits } from "../../src/web/http/limits.js";
import { PortRequests } from "../../src/supervisor/portRequests.js";
import { WebServer } from "../../src/web/server.js";
import { token } from "./web.js";
import { temporaryFolder } from "./temporaryFolder.js";

export const workingManager: ManagerView = {
  state: "working",
  since: new Date(),
  reason: null,
  stalled: null,
  sessionsRefused: null,
  running: 1,
  overruns: 0,
  shares: {},
  webhooks: {},
  sessions: 1,
  counts: noCounts,
  retries: {},
  claims: noDurations,
  runs: noDurations,
  waits: noDurations,
};

class Cluster extends EventEmitter implements ClusterView {
  readonly role: ClusterRole;
  readonly ready = true;
  readonly since = new Date();
  readonly controlPid = null;

  constructor(role: ClusterRole) {
    super();
    this.role = role;
  }

  manager = (): ManagerView => workingManager;
  releasedReason = (): null => null;
}

interface WebServerSettings {
  readonly limits?: HttpLimits;
  /** The leader's by default. */
  readonly role?: ClusterRole;
  /** Any free port by default. */
  readonly port?: number;
  /** Without other processes by default. */
  readonly ports?: SharedPorts;
}

/**
 * Starts a web server in this process, for a table on an unreachable server, and waits until it listens. It is stopped at
 * the end of the test.
 */
export async function startWebServer(
  context: TestContext,
  settings: WebServerSettings = {},
): Promise<{
  /** URL of the web server, with a trailing slash. */
  readonly url: string;
  readonly key: string;
  readonly cluster: EventEmitter;
  /** Emits each log line: its message is the event, and its other fields are the value. */
  readonly logged: NodeEventEmitter;
}> {
  const { page, key, cluster, logged } = await launchWebServer(context, settings);
  return { url: await page, key, cluster, logged };
}

/** Starts a web server like `startWebServer`, but does not wait until it listens. */
export async function launchWebServer(
  context: TestContext,
  { limits, role = "leader", port = 0, ports = new PortRequests(() => {}) }: WebServerSettings,
): Promise<{
  /** Resolves with the URL when the server first listens. */
  readonly page: Promise<string>;
  readonly key: string;
  readonly cluster: EventEmitter;
  readonly logged: NodeEventEmitter;
  readonly server: WebServer;
}> {
  const cwd = await temporaryFolder();
  const config = {
    // No server listens on this port.
    url: "postgresql://nobody@127.0.0.1:1/nothing",
    "pg_http.listen": `127.0.0.1:${port}`,
    "pg_http.token": token,
  };
  await writeFile(join(cwd, "pg_task.json"), JSON.stringify(config));
  const configuration = await loadConfiguration({ cwd, env: {} });
  const cluster = new Cluster(role);
  const logged = new NodeEventEmitter();
  const page = new Promise<string>((resolve) => logged.once("page", ({ url }) => resolve(url)));
  const log = createLog({
    level: "info",
    name: "test",
    write: (line) => {
      const { msg, level: _level, time: _time, name: _name, pid: _pid, hostname: _host, ...fields } = JSON.parse(line);
      logged.emit(msg, fields);
    },
  });
  const server = new WebServer(configuration, { cluster, ports, log, version: "0", ...(limits && { limits }) });
  context.after(() => server.end());
  await server.run();
  const [{ key } = { key: "" }] = configuration.entries;
  return { page, key, cluster, logged, server };
}
