import type { HttpBindings } from "@hono/node-server";
import type { Context } from "hono";
import { userOf } from "./mount.js";

const maxForwarded = 200;

export interface Sender {
  readonly from: string;
  /** As a proxy says, or a client that pretends to be one. */
  readonly forwardedFor?: string;
  /** Whom a proxy or the program has logged in. */
  readonly user?: string;
}

export function senderOf(context: Context): Sender {
  const { incoming }: HttpBindings = context.env;
  const user = userOf(context);
  const forwarded = context.req.header("x-forwarded-for")?.slice(0, maxForwarded);
  return {
    from: incoming.socket.remoteAddress ?? "",
    ...(forwarded === undefined ? {} : { forwardedFor: forwarded }),
    ...(user === undefined ? {} : { user }),
  };
}
