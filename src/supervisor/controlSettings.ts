import type { Configuration, ConnectionTarget, FileParameters } from "../shared/config/types.js";
import {
  refuseTo,
  settingNumber,
  settingsMade,
  type RefuseSetting,
} from "../shared/config/serverSettings.js";
import { connectClient, disconnect, type Client } from "../shared/postgres/client.js";
import type { Log } from "../shared/log.js";

const names = ["pg_conf.close", "pg_conf.fetch", "pg_conf.restart"] as const;

/** What the control connection's role, database or server says of the supervisor's parameters. */
export type ControlSettings = Partial<Pick<FileParameters, (typeof names)[number]>>;

/**
 * Reads them in a session of its own: what ALTER DATABASE has set shows only in a new one.
 *
 * @throws what `connect` throws, and an error where the connection is lost, the signal is aborted or the
 * server does not answer within the target's connect timeout.
 */
export async function fetchControlSettings(
  control: ConnectionTarget,
  file: FileParameters,
  { log, signal }: { readonly log: Log; readonly signal: AbortSignal },
): Promise<ControlSettings> {
  const client = await connectClient(control, { applicationName: "pg_conf", signal });
  // A network that has swallowed the connection would have it wait for ever.
  const giveUp = (): void => void client.connection.stream.destroy();
  const timer =
    control.connectTimeoutMs > 0 ? setTimeout(giveUp, control.connectTimeoutMs) : undefined;
  signal.addEventListener("abort", giveUp);
  if (signal.aborted) giveUp();
  try {
    return await readControlSettings(client, file, refuseTo(log));
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", giveUp);
    await disconnect(client);
  }
}

/** @param file what is used instead of a setting that makes no sense, which is said */
export async function readControlSettings(
  client: Pick<Client, "query">,
  file: FileParameters,
  refuse: RefuseSetting,
): Promise<ControlSettings> {
  const made = await settingsMade(client, names);
  const settings: { -readonly [name in keyof ControlSettings]: ControlSettings[name] } = {};
  for (const name of names) {
    const text = made.get(name);
    if (text === undefined) continue;
    const value = settingNumber(name, text);
    if (value === null) refuse(name, text, file[name]);
    else settings[name] = value;
  }
  return settings;
}

/** The configuration with these in place of the file's. */
export function withSettings(configuration: Configuration, made: ControlSettings): Configuration {
  return {
    ...configuration,
    parameters: { ...configuration.parameters, ...made },
    entries: configuration.entries.map((entry) => ({
      ...entry,
      parameters: { ...entry.parameters, ...made },
    })),
  };
}
