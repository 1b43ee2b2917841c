/** How many there are. */
export interface Count {
  /** The number, or an estimate by the server's statistics; null if it is unknown. */
  readonly value: number | null;
  readonly exact: boolean;
  /** How many were counted: there are at least so many. */
  readonly least: number;
}

export const unknownCount: Count = { value: null, exact: false, least: 0 };

export const exactly = (value: number): Count => ({ value, exact: true, least: value });

export const estimated = (value: number, least = 0): Count => ({
  value: Math.max(least, Math.round(value)),
  exact: false,
  least,
});

export const atLeast = (least: number): Count => ({ value: null, exact: false, least });

/** Whether there is at least one; null if that is unknown. */
export const isSome = ({ value, least }: Count): boolean | null =>
  least > 0 || (value !== null && value > 0) ? true : value === null ? null : false;

export const sumOf = (one: Count, other: Count): Count => ({
  value: one.value === null || other.value === null ? null : one.value + other.value,
  exact: one.exact && other.exact,
  least: one.least + other.least,
});

/** With `>` if only a part was counted, and "–" if nothing is known. */
export function describeCount(
  { value, exact, least }: Count,
  { about, format }: { readonly about: string; readonly format: (value: number) => string },
): string {
  if (value !== null) return `${exact ? "" : `${about} `}${format(value)}`;
  return least > 0 ? `> ${format(least)}` : "–";
}
