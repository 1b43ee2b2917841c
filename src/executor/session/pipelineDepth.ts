import {
  durationGrowth,
  durationShrink,
  longRunMs,
  maxPipelineRuns,
  maxPipelineRunsWhenShort,
  minPipelineRuns,
  pipelineMs,
  rememberedRuns,
} from "../tuning.js";

/**
 * Determines the pipeline depth, that is, how many runs of a session may be on the wire at once. The depth is derived
 * from how long recent runs took.
 */
export class PipelineDepth {
  #typicalMs = pipelineMs / minPipelineRuns;
  #runsSinceLong = 0;

  get maxRuns(): number {
    const limit = this.#runsSinceLong < rememberedRuns ? maxPipelineRuns : maxPipelineRunsWhenShort;
    return Math.min(limit, Math.floor(pipelineMs / this.#typicalMs));
  }

  /**
   * Records the duration of a run.
   *
   * @param ms how long the run took on the server
   */
  addDuration(ms: number): void {
    this.#runsSinceLong = ms > longRunMs ? 0 : this.#runsSinceLong + 1;
    const factor = ms > this.#typicalMs ? durationGrowth : durationShrink;
    // At the lower bound of the typical duration, a single long run does not change the depth. Yet the depth adapts
    // quickly when the durations of runs change.
    const min = pipelineMs / maxPipelineRunsWhenShort / durationGrowth;
    const max = pipelineMs / minPipelineRuns;
    this.#typicalMs = Math.min(max, Math.max(min, this.#typicalMs * factor));
  }
}
