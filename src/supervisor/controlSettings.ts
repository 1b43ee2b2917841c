import type { Configuration } from "../shared/config/types.js";
import type { FileParameters } from "../shared/config/parameterTable.js";
import type { ConnectionTarget } from "../shared/postgres/target/target.js";
import {
  logInvalidSettings,
  parseSettingNumber,
  readServerSettings,
  type OnInvalidSetting,
} from "../shared/config/serverSettings.js";
import { applicationNames } from "../shared/postgres/applicationNames.js";
import { connectClient, destroyOnAbort, disconnect, type Client } from "../shared/postgres/client.js";
import type { Log } from "../shared/log.js";
import { timeoutSignal } from "../shared/timeoutSignal.js";

const names = ["pg_conf.close", "pg_conf.fetch", "pg_conf.restart"] as const;

/** Supervisor parameters that are set in the control connection's server. */
export type ControlSettings = Partial<Pick<FileParameters, (typeof names)[number]>>;

/**
 * Reads the control settings in a new session, because only a new session sees the effect of ALTER DATABASE.
 *
 * @throws the errors of `connectClient`.
 * @throws an error if the connection is lost, the signal is aborted, or the server does not answer within the target's
 * connect timeout.
 */
export async function fetchControlSettings(
  control: ConnectionTarget,
  file: FileParameters,
  { log, signal }: { readonly log: Log; readonly signal: AbortSignal },
): Promise<ControlSettings> {
  const { supervisor: applicationName } = applicationNames;
  const client = await connectClient(control, { applicationName, isControl: true, signal });
  const { connectTimeoutMs: ms } = control;
  const limited = ms > 0 ? timeoutSignal(ms, signal) : signal;
  try {
    return await destroyOnAbort(limited, client, () => readControlSettings(client, file, logInvalidSettings(log)));
  } finally {
    await disconnect(client);
  }
}

/** @param file parameters of the configuration file, which replace invalid settings */
export async function readControlSettings(
  client: Pick<Client, "query">,
  file: FileParameters,
  onInvalid: OnInvalidSetting,
): Promise<ControlSettings> {
  const texts = await readServerSettings(client, names);
  const settings: { -readonly [name in keyof ControlSettings]: ControlSettings[name] } = {};
  for (const name of names) {
    const text = texts.get(name);
    if (text === undefined) continue;
    const value = parseSettingNumber(name, text);
    if (value === null) onInvalid(name, text, file[name]);
    else settings[name] = value;
  }
  return settings;
}

export function applyControlSettings(configuration: Configuration, settings: ControlSettings): Configuration {
  return {
    ...configuration,
    parameters: { ...configuration.parameters, ...settings },
    entries: configuration.entries.map((entry) => ({
      ...entry,
      parameters: { ...entry.parameters, ...settings },
    })),
  };
}
