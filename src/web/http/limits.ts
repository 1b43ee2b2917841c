import { createServer, type RequestListener, type Server } from "node:http";
import type { MiddlewareHandler } from "hono";
import { ApiError } from "../errors.js";

/** What the web server accepts from its clients. */
export interface HttpLimits {
  /** Largest number of open connections. */
  readonly connections: number;
  /** How many of these are reserved for requests without a token, such as those to `/health`. */
  readonly reserved: number;
  /** Largest size of a request's line and headers, in bytes. */
  readonly headerBytes: number;
  /** Largest size of a request's body, in bytes. */
  readonly bodyBytes: number;
  /** How long a client may take to send the headers of a request, in ms. */
  readonly headersMs: number;
  /** How long a client may take to send a whole request, in ms. */
  readonly requestMs: number;
  /** How often the server looks for requests that take longer, in ms. */
  readonly checkMs: number;
}

export const httpLimits: HttpLimits = {
  connections: 256,
  reserved: 16,
  headerBytes: 16 * 1024,
  bodyBytes: 1024 * 1024,
  headersMs: 10_000,
  requestMs: 30_000,
  checkMs: 5_000,
};

/** Creates an HTTP server that enforces the limits on headers and time. */
export function createLimitedServer(limits: HttpLimits, listener: RequestListener): Server {
  return createServer(
    {
      maxHeaderSize: limits.headerBytes,
      headersTimeout: limits.headersMs,
      requestTimeout: limits.requestMs,
      connectionsCheckingInterval: limits.checkMs,
    },
    listener,
  );
}

/**
 * Rejects requests whose bodies are larger than allowed, or whose length is not known in advance. The body is not read
 * here.
 */
export function limitedBodies({ bodyBytes }: HttpLimits): MiddlewareHandler {
  return async (context, next) => {
    if (context.req.header("transfer-encoding") !== undefined) {
      throw new ApiError("LENGTH_REQUIRED", "a request with a body needs the header Content-Length");
    }
    if (Number(context.req.header("content-length") ?? 0) > bodyBytes) {
      throw new ApiError("TOO_LARGE", `the body of a request may have at most ${bodyBytes} bytes`);
    }
    await next();
  };
}
