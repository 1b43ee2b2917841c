import type { HttpBindings } from "@hono/node-server";
import type { Context } from "hono";

const maxForwarded = 200;

export interface Sender {
  readonly from: string;
  /** As a proxy says, or a client that pretends to be one. */
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
