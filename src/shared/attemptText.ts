interface Tried {
  readonly state: string;
  readonly attempt: number | null;
  readonly retry: number | null;
}

export function attemptText({ state, attempt, retry }: Tried): string | null {
  const failed = attempt ?? 0;
  const most = Math.max(retry ?? 0, failed) + 1;
  switch (state) {
    case "PLAN":
    case "GONE":
    case "STOP":
      return failed === 0 ? null : `${failed} of ${most} attempts failed`;
    case "DONE":
      return failed === 0 ? null : `attempt ${failed + 1} of ${most}`;
    default:
      return most === 1 ? null : `attempt ${failed + 1} of ${most}`;
  }
}
