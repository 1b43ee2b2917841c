import type { Command } from "commander";
import { declareAdd } from "./add.js";
import { declareDelete, declareRetry, declareRunNow, declareStop } from "./changeTasks.js";
import { declareDoctor } from "./doctor.js";
import { declareExplainPlan } from "./explainPlan.js";
import { declareGroups } from "./groups.js";
import { declareInit } from "./init.js";
import { declareList } from "./list.js";
import { declarePause, declareResume } from "./pauseResume.js";
import { declarePrune } from "./prune.js";
import type { CommandRun } from "../support/run.js";
import { declareShow } from "./show.js";
import { declareStatus } from "./status.js";
import { declareWatch } from "./watch.js";

/** The commands that look at tasks and steer them, in the order in which help lists them. */
export const declarations: readonly ((program: Command, run: CommandRun) => void)[] = [
  declareInit,
  declareStatus,
  declareList,
  declareShow,
  declareAdd,
  declareStop,
  declareRetry,
  declareRunNow,
  declareDelete,
  declarePause,
  declareResume,
  declarePrune,
  declareGroups,
  declareWatch,
  declareExplainPlan,
  declareDoctor,
];
