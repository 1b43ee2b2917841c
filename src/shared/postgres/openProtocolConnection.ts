import { openStream } from "./openStream.js";
import { ProtocolConnection } from "./protocol/connection.js";
import type { Startup } from "./startupOptions.js";
import { connectToFirst } from "./target/connectToFirst.js";
import { socketAddress, tlsSettings, type ConnectionTarget } from "./target/target.js";

interface ConnectOptions {
  readonly applicationName: string;
  readonly startup: Startup;
  /** Returns the size in bytes of the largest message that is kept whole. Called for each message. */
  readonly messageLimit: () => number;
}

export interface CancellableConnection {
  readonly wire: ProtocolConnection;
  /** Sends a cancel request. Returns whether it has reached the server. */
  cancel(): Promise<boolean>;
}

/** Unlike `connectClient`, does not use the pg driver, which would double the code that an executor thread loads. */
export async function openProtocolConnection(
  target: ConnectionTarget,
  { applicationName, startup, messageLimit }: ConnectOptions,
): Promise<CancellableConnection> {
  return await connectToFirst(target, undefined, async (server, encryption) => {
    const { stream, key } = await openStream(server, encryption, { applicationName, options: startup.options });
    return {
      wire: new ProtocolConnection({ pid: key.pid, stream }, messageLimit),
      cancel: async () => {
        const { sendCancelRequest } = await import("./cancelRequest.js");
        const used = "encrypted" in stream ? "required" : "none";
        const { keepAliveMs = null } = server;
        return await sendCancelRequest(socketAddress(server), key, {
          tls: tlsSettings(server),
          keepAliveMs,
          encryption: used,
        });
      },
    };
  });
}
