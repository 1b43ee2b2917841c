import { mask } from "../logRedaction.js";
import type { FileParameters } from "./parameterTable.js";
import type { ConnectionTarget } from "../postgres/target/target.js";

/** Returns the target with its password masked. */
export function maskTarget(target: ConnectionTarget): ConnectionTarget {
  return target.password === undefined ? target : { ...target, password: mask };
}

/** Returns the parameters with the token masked. */
export function maskParameters<T extends Partial<FileParameters>>(parameters: T): T {
  return parameters["pg_http.token"] ? { ...parameters, "pg_http.token": mask } : parameters;
}
