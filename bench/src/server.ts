import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startEmbedded } from "../../dist/src/embedded/embeddedServer.js";
import { createLog } from "../../dist/src/shared/log.js";

/** A PostgreSQL server with a new data folder. `stop` also removes that folder. */
export interface Server {
  /** URL for the superuser and database `postgres`. */
  readonly url: string;
  stop(): Promise<void>;
}

/** Settings of the server. All others have their default values, including those for durability. */
export const serverSettings = { max_connections: 300 } as const;

export async function startServer(): Promise<Server> {
  const scratch = await mkdtemp(join(tmpdir(), "pg-task-bench-"));
  // If this process runs as root, the server runs as another user, who needs search permission on the path.
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
