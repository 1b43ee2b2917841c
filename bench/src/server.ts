import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startEmbedded } from "../../dist/src/embedded/server.js";
import { createLog } from "../../dist/src/shared/log.js";

/** A PostgreSQL with an empty data folder, which goes with it. */
export interface Server {
  /** Works as it stands, for superuser and database `postgres`. */
  readonly url: string;
  stop(): Promise<void>;
}

/** As it comes, durability included, but for room for 200 sessions. */
export const serverSettings = { max_connections: 300 } as const;

export async function startServer(): Promise<Server> {
  const scratch = await mkdtemp(join(tmpdir(), "pg-task-bench-"));
  // As root, the server runs as somebody else and has to be able to walk there.
  await chmod(scratch, 0o711);
  const server = await startEmbedded({
    dataDirectory: join(scratch, "data"),
    settings: serverSettings,
    log: createLog({
      level: "error",
      name: "bench",
      write: (line) => process.stderr.write(line),
    }),
  });
  return {
    url: `${server.url}?sslmode=disable`,
    stop: async () => {
      await server.stop();
      await rm(scratch, { recursive: true, force: true });
    },
  };
}
