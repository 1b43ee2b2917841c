/** One line of the doctor's. */
export interface Check {
  /** What was looked at. */
  readonly name: string;
  readonly level: "ok" | "warn" | "fail";
  readonly text: string;
  /** What to do; for what is not ok. */
  readonly remedy?: string;
  /** Exit code of a failure. */
  readonly exitCode?: number;
}

export const ok = (name: string, text: string): Check => ({ name, level: "ok", text });

export const warn = (name: string, text: string, remedy: string): Check => ({
  name,
  level: "warn",
  text,
  remedy,
});

export const fail = (name: string, text: string, remedy: string, exitCode = 4): Check => ({
  name,
  level: "fail",
  text,
  remedy,
  exitCode,
});
