/** A simple command of a shell: its words, and where its output goes. */
export interface ShellCommand {
  readonly words: readonly string[];
  /** Files to which the output is redirected, other than /dev/null. */
  readonly outputs: readonly string[];
}

const redirection = /^(?:&>>?|[12]?>>?)\s*(&[12]|[^\s'"\\$`;|&<>()]+)/;
const plain = /^[^\s'"\\$`;|&<>(){}*?[\]~#!]+/;
const doubleQuoted = /^"((?:[^"\\$`]|\\[^])*)"/;

/** Null if a shell would do more than run one program with these words. */
export function parseShellCommand(text: string): ShellCommand | null {
  const words: string[] = [];
  const outputs: string[] = [];
  let rest = text.trim();
  let word: string | null = null;
  while (rest !== "") {
    const redirected = word === null ? redirection.exec(rest) : null;
    const piece = pieceOf(rest);
    if (redirected !== null) {
      const [all, target = ""] = redirected;
      if (!target.startsWith("&") && target !== "/dev/null") outputs.push(target);
      rest = rest.slice(all.length);
    } else if (/^\s/.test(rest)) {
      if (word !== null) words.push(word);
      word = null;
      rest = rest.trimStart();
    } else if (piece === null) {
      return null;
    } else {
      word = (word ?? "") + piece.value;
      rest = rest.slice(piece.length);
    }
  }
  if (word !== null) words.push(word);
  return words.length === 0 ? null : { words, outputs };
}

function pieceOf(text: string): { readonly value: string; readonly length: number } | null {
  const [whole, inside = ""] = /^'([^']*)'/.exec(text) ?? [];
  if (whole !== undefined) return { value: inside, length: whole.length };
  const [quoted, escaped = ""] = doubleQuoted.exec(text) ?? [];
  if (quoted !== undefined) return { value: escaped.replace(/\\([$`"\\])/g, "$1"), length: quoted.length };
  const [backslash, character = ""] = /^\\([^])/.exec(text) ?? [];
  if (backslash !== undefined) return { value: character, length: 2 };
  const [bare] = plain.exec(text) ?? [];
  return bare === undefined ? null : { value: bare, length: bare.length };
}
