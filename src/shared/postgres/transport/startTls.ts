import { once } from "node:events";
import type { Socket } from "node:net";
import { connect as upgradeToTls, type TLSSocket } from "node:tls";
import { isError, systemErrorCode } from "../../errors.js";
import { TlsProblem } from "../errors.js";
import type { SocketAddress, SocketOptions } from "./socketOptions.js";
import { tlsOptions } from "./tlsOptions.js";

export async function startTls(
  socket: Socket,
  address: SocketAddress,
  { tls, signal }: SocketOptions,
): Promise<TLSSocket> {
  const secured = upgradeToTls({
    socket,
    ...(await tlsOptions(tls, address)),
    ...(tls.direct ? { ALPNProtocols: ["postgresql"] } : {}),
  });
  secured.on("error", () => {});
  try {
    await once(secured, "secureConnect", { signal });
  } catch (error) {
    secured.destroy();
    if (signal.aborted || error instanceof TlsProblem) throw error;
    throw new TlsProblem(`SSL error: ${tlsReason(error)}`, { cause: error });
  }
  if (tls.direct && secured.alpnProtocol !== "postgresql") {
    secured.destroy();
    throw new TlsProblem("direct SSL connection was established without ALPN protocol negotiation extension");
  }
  return secured;
}

/** Node has an error code for each defect of a certificate, but libpq has one message for all of them. */
function tlsReason(error: unknown): string {
  if (!isError(error)) return String(error);
  const code = systemErrorCode(error);
  const handshake = code === "" || /^(ERR_|E[A-Z]+$)/.test(code);
  return handshake ? error.message.trim() : `certificate verify failed: ${error.message}`;
}
