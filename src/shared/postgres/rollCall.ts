import { backendPid, type Client } from "./client.js";
import { identifier } from "./quoting.js";

const question = "ask";
const answer = "here";

/**
 * Listens on a channel, and answers for this process when another one asks. A suspended process does not answer,
 * although its kernel keeps its connections open.
 *
 * @param answered receives the pid of the backend of each process that has answered
 * @returns a function that asks all processes that listen on the channel
 */
export async function openRollCall(
  client: Client,
  channel: string,
  { isPresent, answered }: { readonly isPresent: () => boolean; readonly answered: (pid: number) => void },
): Promise<() => Promise<void>> {
  client.on("notification", ({ channel: from, payload, processId }) => {
    // The server sends a process its own notifications as well.
    if (from !== channel || processId === backendPid(client)) return;
    if (payload === answer) answered(processId);
    if (payload === question && isPresent()) answerRollCall(client, channel);
  });
  await client.query(`LISTEN ${identifier(channel)}`);
  return () => notify(client, channel, question);
}

/** If the answer cannot be sent, the connection has ended. */
export function answerRollCall(client: Client, channel: string): void {
  notify(client, channel, answer).catch(() => {});
}

async function notify(client: Client, channel: string, payload: string): Promise<void> {
  // It changes nothing, so its commit need not wait for the disk or for replicas.
  const sql = "SELECT pg_catalog.set_config('synchronous_commit', 'off', true), pg_catalog.pg_notify($1, $2)";
  await client.query(sql, [channel, payload]);
}

export const isRollCallQuestion = (payload: string | undefined): boolean => payload === question;

export const isRollCall = (payload: string | undefined): boolean => payload === question || payload === answer;
