/**
 * SQL of how much later than the times of its rule the schedule of row `t` runs. It is chosen once, and successors
 * inherit it, so that every function of the calendar gets a time that is earlier by it, and its result is later by it.
 */
export const shiftOf = (t: string): string => `coalesce(${t}.shift, interval '0')`;
