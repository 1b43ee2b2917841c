import type { WebhookStatus } from "../../tasks/queries/webhooks.js";
import { formatCount, formatTime } from "../terminal/format.js";

export function describeWebhook({ name, waiting, failures, error, failedAt }: WebhookStatus): string {
  const failed = failures === 0 ? "" : `, ${formatCount(failures, "failure")} in a row`;
  const last = error === null || failedAt === null ? "" : `, last error ${formatTime(failedAt)}: ${error}`;
  return `${name}: ${waiting} waiting${failed}${last}`;
}
