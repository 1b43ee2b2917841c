import { openStream } from "./openStream.js";
import { ProtocolConnection } from "./protocol/connection.js";
import type { Startup } from "./startupOptions.js";
import { connectToFirst } from "./target/connectToFirst.js";
import type { ConnectionTarget } from "./target/target.js";

export interface ConnectOptions {
  readonly applicationName: string;
  readonly startup: Startup;
  /** Returns the size in bytes of the largest message that is kept whole. Called for each message. */
  readonly messageLimit: () => number;
}

/** Unlike `connectClient`, does not use the pg driver, which would double the code that an executor thread loads. */
export async function openProtocolConnection(
  target: ConnectionTarget,
  { applicationName, startup, messageLimit }: ConnectOptions,
): Promise<ProtocolConnection> {
  return await connectToFirst(target, undefined, async (server, encryption) => {
    const { stream, key } = await openStream(server, encryption, { applicationName, options: startup.options });
    return new ProtocolConnection({ pid: key.pid, stream }, messageLimit);
  });
}
