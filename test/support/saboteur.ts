import { fileURLToPath } from "node:url";
import type { Failing, Sabotage } from "./saboteurPreload.cjs";

export type { Sabotage };

/** What a thread reports right before it fails. */
export const failing: Failing = "failing";

/** The module that makes threads fail. It has to be preloaded into every thread of the program. */
export const saboteurFile = fileURLToPath(new URL("saboteurPreload.cjs", import.meta.url));

/** The option of Node.js that preloads it. */
export const saboteurOption = `--require ${JSON.stringify(saboteurFile)}`;
