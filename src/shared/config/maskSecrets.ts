import { mask } from "../logRedaction.js";
import type { FileParameters } from "./parameterTable.js";
import { secretParameters } from "./parameters.js";
import { maskWebhook } from "./webhooks.js";
import type { ConnectionTarget, TargetServer } from "../postgres/target/target.js";

export function maskTarget(target: ConnectionTarget): ConnectionTarget {
  const { otherServers, tls } = target;
  const key = tls?.keyPassword === undefined ? {} : { tls: { ...tls, keyPassword: mask } };
  const masked = { ...maskPassword(target), ...key };
  return otherServers === undefined ? masked : { ...masked, otherServers: otherServers.map(maskPassword) };
}

function maskPassword<T extends TargetServer>(server: T): T {
  return server.password === undefined ? server : { ...server, password: mask };
}

export function maskParameters<T extends Partial<FileParameters>>(parameters: T): T {
  const given = secretParameters.filter((name) => parameters[name]);
  const webhooks = parameters["pg_http.webhooks"];
  return {
    ...parameters,
    ...Object.fromEntries(given.map((name) => [name, mask])),
    ...(webhooks === undefined ? {} : { "pg_http.webhooks": webhooks.map(maskWebhook) }),
  };
}
