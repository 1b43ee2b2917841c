/** How many sessions can become busy. */
export interface StartLimits {
  /** How many more sessions can become busy. */
  readonly all: number;
  /** How many of them a group may take that already runs something. The rest is reserved for the others. */
  readonly unreserved: number;
  /** How many groups that run nothing can get a session before their turn, even beyond `all`. */
  readonly reserved: number;
}

export const noStarts: StartLimits = { all: 0, unreserved: 0, reserved: 0 };

/** Returns the limits after a claim that has started `count` tasks. */
export function afterStarts(
  { all, unreserved, reserved }: StartLimits,
  count: number,
  { usesReserve }: { readonly usesReserve: boolean },
): StartLimits {
  const rest = all - count;
  if (usesReserve) return { all: rest, unreserved: Math.min(rest, unreserved), reserved: reserved - count };
  return { all: rest, unreserved: unreserved - count, reserved };
}
