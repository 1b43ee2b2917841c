import { html } from "htm/preact";
import type { VNode } from "preact";
import type { ProcessInfo, Processes } from "../api/schemas.js";
import { fullTimeText } from "./format.js";
import { useResource } from "./resource.js";

/** Says where a process is that has this connection: `process 4711 at 10.0.0.5, since …`. */
function processText({ pid, address, since }: ProcessInfo): string {
  const place = address === null ? "" : ` at ${address}`;
  return `backend ${pid}${place}${since === null ? "" : `, connected since ${fullTimeText(since)}`}`;
}

/** Says in the page of a standby which process leads, because only the leader knows rates and charts. */
export function LeaderNotice(): VNode {
  const { value, problem } = useResource<Processes>("/processes", { minIntervalMs: 5_000, pollMs: 10_000 });
  return html`<p class="notice">
    This process runs no manager for the table, so only the leader can show its rates, its sessions and the last hour.
    ${" "}${problem === null ? value !== null && leaderText(value) : problem} <a href="/processes">Processes</a>
  </p>`;
}

function leaderText({ leader, error }: Processes): string {
  if (error !== null) return `Which process leads is unknown: ${error}.`;
  return leader === null ? "No process leads now." : `The leader is ${processText(leader)}.`;
}
