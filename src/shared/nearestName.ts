/**
 * Returns the known name closest to a mistyped one, if any is close. Letters that were left out are likelier than
 * others, so that `grp` is rather `group` than `gap`.
 */
export function nearestName(given: string, known: readonly string[]): string | undefined {
  const limit = Math.max(1, Math.floor(given.length / 3));
  const ranked = known
    .map((name) => ({
      name,
      edits: editDistance(given.toLowerCase(), name.toLowerCase()),
      shortened: isShortened(given.toLowerCase(), name.toLowerCase()),
    }))
    .filter(({ edits, shortened }) => edits <= (shortened ? Math.max(2, limit) : limit))
    .toSorted((a, b) => Number(b.shortened) - Number(a.shortened) || a.edits - b.edits);
  return ranked[0]?.name;
}

function isShortened(given: string, name: string): boolean {
  if (given.length < 3 || given[0] !== name[0]) return false;
  let at = 0;
  for (const letter of name) if (letter === given[at]) at += 1;
  return at === given.length;
}

/** Damerau–Levenshtein distance. */
function editDistance(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      next[j] = Math.min(
        (row[j] ?? 0) + 1,
        (next[j - 1] ?? 0) + 1,
        (row[j - 1] ?? 0) + same,
        swapped ? (before[j - 2] ?? 0) + 1 : Infinity,
      );
    }
    before = row;
    row = next;
  }
  return row[b.length] ?? 0;
}
