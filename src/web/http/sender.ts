import type { HttpBindings } from "@hono/node-server";
import type { Context } from "hono";

/** Longest `X-Forwarded-For` that is logged. */
const maxForwarded = 200;

/** Who sent a request, for the log. */
export interface Sender {
  /** The address from which the connection came. */
  readonly from: string;
  /** Whose request it is according to a proxy, or to a client that pretends to be one. */
  readonly forwardedFor?: string;
}

export function senderOf(context: Context): Sender {
  const { incoming }: HttpBindings = context.env;
  const forwarded = context.req.header("x-forwarded-for")?.slice(0, maxForwarded);
  return {
    from: incoming.socket.remoteAddress ?? "",
    ...(forwarded === undefined ? {} : { forwardedFor: forwarded }),
  };
}
