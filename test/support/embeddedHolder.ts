import { startEmbedded } from "../../src/embedded/embeddedServer.js";
import { toReport } from "../../src/shared/errors.js";
import { quick, recordingLog, type HolderEvent } from "./embedded.js";

const report = (event: HolderEvent) => void process.stdout.write(`${JSON.stringify(event)}\n`);

const options: { dataDirectory: string; port?: number } = JSON.parse(process.argv[2] ?? "{}");
process.on("SIGINT", () => report({ event: "interrupted" }));
try {
  const { log } = recordingLog();
  const { url, port, pid } = await startEmbedded({ ...options, settings: quick, log });
  report({ event: "started", url, port, pid });
} catch (error) {
  report({ event: "failed", ...toReport(error) });
}
