/** The result of one check. */
export interface Check {
  readonly name: string;
  readonly level: "ok" | "warn" | "fail";
  readonly text: string;
  /** What the user can do about the problem. Not set if the level is "ok". */
  readonly remedy?: string;
  /** The exit code of the command if this check fails. */
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
