import { cost } from "./cost.js";
import { flat } from "./flat.js";
import { idle } from "./idle.js";
import { latency } from "./latency.js";
import { longTasks } from "./longTasks.js";
import type { Measure } from "./measure.js";
import { million } from "./million.js";
import { order } from "./order.js";
import { producers } from "./producers.js";
import { requests } from "./requests.js";
import { threads } from "./threads.js";
import { steady } from "./steady.js";
import { throughput } from "./throughput.js";
import { asyncTriggers } from "./triggers.js";
import { tune } from "./tune.js";

/** All measures, in the order of the page. */
export const measures: readonly Measure[] = [
  throughput,
  cost,
  latency,
  steady,
  producers,
  asyncTriggers,
  flat,
  million,
  idle,
  longTasks,
  threads,
  order,
  requests,
  tune,
];
