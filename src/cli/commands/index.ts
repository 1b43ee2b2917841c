import type { Command } from "commander";
import { registerAdd } from "./add.js";
import { registerCompletion } from "./completion.js";
import { registerCompleteValues } from "./completeValues.js";
import { registerDelete, registerRetry, registerRunNow, registerStop } from "./changeTasks.js";
import { registerDoctor } from "./doctor.js";
import { registerWhy } from "./why.js";
import { registerGroups } from "./groups.js";
import { registerInit } from "./init.js";
import { registerList } from "./list.js";
import { registerManual } from "./manual.js";
import { registerNext } from "./next.js";
import { registerPause, registerResume } from "./pauseResume.js";
import { registerPrune } from "./prune.js";
import type { RunCommand } from "../support/options.js";
import { registerShow } from "./show.js";
import { registerStatus } from "./status.js";
import { registerWatch } from "./watch.js";

/**
 * Functions that register the commands, in the order in which the help lists them. `start` and `check` are registered
 * elsewhere.
 */
export const registrations: readonly ((program: Command, run: RunCommand) => void)[] = [
  registerInit,
  registerStatus,
  registerList,
  registerShow,
  registerNext,
  registerAdd,
  registerStop,
  registerRetry,
  registerRunNow,
  registerDelete,
  registerPause,
  registerResume,
  registerPrune,
  registerGroups,
  registerWatch,
  registerWhy,
  registerDoctor,
  registerCompletion,
  registerManual,
  registerCompleteValues,
];
