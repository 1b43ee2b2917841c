import type { IncomingMessage } from "node:http";
import type { HttpBindings } from "@hono/node-server";
import type { Context } from "hono";

/** Whom a program has logged in. */
export interface Login {
  /** Written to the log with each change. */
  readonly user: string;
  /** Whether this user may only read. */
  readonly readOnly?: boolean | undefined;
}

/** What is known of a request besides what it says. */
interface Mounted {
  /** The path under which the page is mounted, without a slash at its end; empty for the root. */
  readonly base: string;
  /** Whether a server of the program has received it, and not the one of pg-task. */
  readonly isForeign: boolean;
  readonly login: Login | null;
}

const known = new WeakMap<IncomingMessage, Mounted>();
const users = new WeakMap<IncomingMessage, string>();

/** Removes the base from the request's URL, unless a proxy has done so. */
export function mountRequest(request: IncomingMessage, mounted: Mounted): void {
  const { url = "/" } = request;
  const { base } = mounted;
  if (base !== "" && (url === base || url.startsWith(`${base}/`) || url.startsWith(`${base}?`))) {
    const rest = url.slice(base.length);
    request.url = rest.startsWith("/") ? rest : `/${rest}`;
  }
  known.set(request, mounted);
}

export function incomingOf(context: Context): IncomingMessage {
  const { incoming }: HttpBindings = context.env;
  return incoming;
}

export const mountOf = (context: Context): Mounted =>
  known.get(incomingOf(context)) ?? { base: "", isForeign: false, login: null };

export const noteUser = (context: Context, user: string): void => void users.set(incomingOf(context), user);

const maxForwarded = 200;

export interface Sender {
  readonly from: string;
  /** As a proxy says, or a client that pretends to be one. */
  readonly forwardedFor?: string;
  /** Whom a proxy or the program has logged in. */
  readonly user?: string;
}

export function senderOf(context: Context): Sender {
  const incoming = incomingOf(context);
  const user = users.get(incoming);
  const forwarded = context.req.header("x-forwarded-for")?.slice(0, maxForwarded);
  return {
    from: incoming.socket.remoteAddress ?? "",
    ...(forwarded === undefined ? {} : { forwardedFor: forwarded }),
    ...(user === undefined ? {} : { user }),
  };
}
