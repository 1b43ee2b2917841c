import {
  explainConfiguration,
  type ExplainedConfiguration,
  type LoadOptions,
} from "../../shared/config/loadConfiguration.js";
import { findSource } from "../../shared/config/findSource.js";
import { embeddedUrl } from "./embeddedUrl.js";

/**
 * The configuration as every command reads it: where nothing names a server, it is the embedded one
 * that runs for the working folder, before libpq's defaults. Null when there is no file either, and no
 * such server runs.
 *
 * @throws PgTaskError of the family CONFIG; CONNECTION_FAILED when it cannot be seen whether one runs.
 */
export async function explainHere(options: LoadOptions): Promise<ExplainedConfiguration | null> {
  const { nothing } = await findSource(options);
  const explained = nothing ? null : await explainConfiguration(options);
  if (explained !== null && explained.controlFrom !== "libpq's defaults") return explained;
  const control = await embeddedUrl(options.cwd);
  return control === null ? explained : await explainConfiguration({ ...options, control });
}
