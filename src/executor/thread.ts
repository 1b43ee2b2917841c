import type { ExecutorThreadData } from "../shared/ipc/messages.js";
import { hostExecutor } from "./host.js";

/** The pool's one task of this thread; it lasts until the thread's work ends. */
export default async function run(data: ExecutorThreadData): Promise<void> {
  await hostExecutor(data);
}
