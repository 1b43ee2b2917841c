import { slowRunMs } from "../../shared/tuning.js";
import {
  durationGrowth,
  durationShrink,
  maxPipelineRuns,
  maxPipelineRunsWithoutSlow,
  minPipelineRuns,
  pipelineMs,
  rememberedRuns,
} from "../tuning.js";

/** How many runs of a session may be on the wire at once, by how long recent runs took. */
export class PipelineDepth {
  #typicalMs = pipelineMs / minPipelineRuns;
  #runsSinceSlow = 0;

  get maxRuns(): number {
    const limit = this.#runsSinceSlow < rememberedRuns ? maxPipelineRuns : maxPipelineRunsWithoutSlow;
    return Math.min(limit, Math.floor(pipelineMs / this.#typicalMs));
  }

  addDuration(ms: number): void {
    this.#runsSinceSlow = ms > slowRunMs ? 0 : this.#runsSinceSlow + 1;
    const factor = ms > this.#typicalMs ? durationGrowth : durationShrink;
    // The lower bound is chosen so that a single longer run after many short ones does not change the depth, but the
    // depth still adapts quickly when durations change.
    const min = pipelineMs / maxPipelineRunsWithoutSlow / durationGrowth;
    const max = pipelineMs / minPipelineRuns;
    this.#typicalMs = Math.min(max, Math.max(min, this.#typicalMs * factor));
  }
}
