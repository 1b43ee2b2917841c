import {
  explainConfiguration,
  type ExplainedConfiguration,
  type LoadOptions,
} from "../../shared/config/loadConfiguration.js";
import { findSource } from "../../shared/config/findSource.js";
import { embeddedUrl } from "./embeddedUrl.js";

/**
 * Reads the configuration as every command does. If nothing names a server, the embedded server that runs in the
 * working directory is preferred to libpq's defaults.
 *
 * @returns null if there is neither a file nor such a server
 * @throws PgTaskError of the family CONFIG; CONNECTION_FAILED if it cannot be determined whether an embedded server
 * runs
 */
export async function resolveConfiguration(options: LoadOptions): Promise<ExplainedConfiguration | null> {
  const { nothing } = await findSource(options);
  const explained = nothing ? null : await explainConfiguration(options);
  if (explained !== null && explained.controlFrom !== "libpq's defaults") return explained;
  const control = await embeddedUrl(options.cwd);
  return control === null ? explained : await explainConfiguration({ ...options, control });
}
