import type { PausedSchedules } from "../../tasks/queries/pausedSchedules.js";

/** Says with which command paused schedules are resumed. */
export const howToResume = ({ count, first }: PausedSchedules): string =>
  count > first.length
    ? "resume with pg-task resume --schedule and the ids that pg-task list --schedules shows"
    : `resume with pg-task resume --schedule ${first.map(({ id }) => id).join(",")}`;
