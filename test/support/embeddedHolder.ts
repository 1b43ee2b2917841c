import { startEmbedded } from "../../src/embedded/embeddedServer.js";
import { toReport } from "../../src/shared/errors.js";
import { quick, recordingLog, type HolderEvent } from "./embedded.js";

const tell = (event: HolderEvent) => void process.stdout.write(`${JSON.stringify(event)}\n`);

const options: { dataDirectory: string; port?: number } = JSON.parse(process.argv[2] ?? "{}");
process.on("SIGINT", () => tell({ event: "interrupted" }));
try {
  const { log } = recordingLog();
  const { url, port, pid } = await startEmbedded({ ...options, settings: quick, log });
  tell({ event: "started", url, port, pid });
} catch (error) {
  tell({ event: "failed", ...toReport(error) });
}
