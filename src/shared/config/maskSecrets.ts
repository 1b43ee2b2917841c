import { mask } from "../logRedaction.js";
import type { FileParameters } from "./parameterTable.js";
import { secretParameters } from "./parameters.js";
import type { ConnectionTarget, TargetServer } from "../postgres/target/target.js";

/** Returns the target with its passwords masked. */
export function maskTarget(target: ConnectionTarget): ConnectionTarget {
  const { otherServers } = target;
  const masked = maskPassword(target);
  return otherServers === undefined ? masked : { ...masked, otherServers: otherServers.map(maskPassword) };
}

function maskPassword<T extends TargetServer>(server: T): T {
  return server.password === undefined ? server : { ...server, password: mask };
}

/** Returns the parameters with the tokens masked. */
export function maskParameters<T extends Partial<FileParameters>>(parameters: T): T {
  const given = secretParameters.filter((name) => parameters[name]);
  return { ...parameters, ...Object.fromEntries(given.map((name) => [name, mask])) };
}
