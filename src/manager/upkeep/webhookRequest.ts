import { createHash, createHmac } from "node:crypto";
import type { Webhook } from "../../shared/config/webhooks.js";
import { errorMessage } from "../../shared/errors.js";
import { timeoutSignal } from "../../shared/timeoutSignal.js";
import { packageVersion } from "../../shared/version.js";
import { requestTimeoutMs, webhookPauseMs } from "../model/tuning.js";
import type { End } from "./outbox.sql.js";

/** Where a task has ended. */
export interface Origin {
  readonly database: string;
  /** With its schema. */
  readonly table: string;
}

/** Null if the receiver has accepted the end. */
export type Failure = {
  readonly reason: string;
  /** How long the receiver asks to wait, in ms. Null if it does not ask. */
  readonly askedMs: number | null;
} | null;

const userAgent = `pg-task/${packageVersion()}`;

/** Null if there is none, or if it is infinite. */
function toIso(time: string | null): string | null {
  const date = new Date(time ?? NaN);
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}

/** The same at each try, because the receiver may compare it, and signatures of it. */
function bodyOf({ task, state, group, key, plan, start, stop, error }: End, { database, table }: Origin): string {
  const times = { plan: toIso(plan), start: toIso(start), stop: toIso(stop) };
  const data = { database, table, id: task, state, group, key, ...times, error };
  // Chats show this property.
  const text = `task ${task} (${group}) ${state}${error === null ? "" : `: ${error}`}`;
  return JSON.stringify({ type: `task.${state.toLowerCase()}`, timestamp: times.stop, text, data });
}

/** The same at each try, so that a receiver can drop what it has already got. */
function messageId({ id, task, state, created }: End, { database, table }: Origin, name: string): string {
  const parts = JSON.stringify([name, database, table, id, task, state, new Date(created).getTime()]);
  return `msg_${createHash("sha256").update(parts).digest("base64url").slice(0, 27)}`;
}

/** @param secret as in the configuration: `whsec_` and a key in base64 */
function signature(secret: string, id: string, seconds: number, body: string): string {
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  return `v1,${createHmac("sha256", key).update(`${id}.${seconds}.${body}`).digest("base64")}`;
}

/** Tells a webhook the end of a task, as the specification Standard Webhooks describes it. Never rejects. */
export async function tellWebhook(webhook: Webhook, end: End, origin: Origin, ending: AbortSignal): Promise<Failure> {
  const body = bodyOf(end, origin);
  const id = messageId(end, origin, webhook.name);
  const seconds = Math.floor(Date.now() / 1000);
  const signal = timeoutSignal(requestTimeoutMs, ending);
  try {
    const response = await fetch(webhook.url, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "user-agent": userAgent,
        "webhook-id": id,
        "webhook-timestamp": String(seconds),
        "webhook-signature": signature(webhook.secret, id, seconds, body),
      },
      body,
      // Whoever answers must not choose where the next request goes.
      redirect: "manual",
      signal,
    });
    // Otherwise the connection could not be used again.
    await response.body?.cancel();
    return response.ok ? null : { reason: describeStatus(response.status), askedMs: askedMs(response) };
  } catch (error) {
    return {
      reason: signal.aborted ? `no answer within ${requestTimeoutMs / 1000} s` : describe(error),
      askedMs: null,
    };
  }
}

const describeStatus = (status: number): string =>
  status >= 300 && status < 400 ? `status ${status}: redirects are not followed` : `status ${status}`;

/** That of fetch only says that it has failed. */
function describe(error: unknown): string {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
  const message = errorMessage(cause);
  return message === "" && cause instanceof Error && "code" in cause ? String(cause.code) : message;
}

/** The header has seconds or a date. */
function askedMs({ headers }: Response): number | null {
  const asked = headers.get("retry-after")?.trim() ?? "";
  const ms = /^\d+$/.test(asked) ? Number(asked) * 1000 : Date.parse(asked) - Date.now();
  return ms > 0 ? Math.min(ms, webhookPauseMs.maxAsked) : null;
}
