/** A simple command of a shell: its words, and where its output goes. */
export interface ShellCommand {
  readonly words: readonly string[];
  /** Files to which the output is redirected, other than /dev/null. */
  readonly outputs: readonly string[];
}

const redirection = /^(?:&>>?|[12]?>>?)\s*(&[12]|[^\s'"\\$`;|&<>()]+)/;
/** A part of a word: in single or double quotes, a character behind a backslash, or plain. */
const part = /^(?:'([^']*)'|"((?:[^"\\$`]|\\[^])*)"|\\([^])|([^\s'"\\$`;|&<>(){}*?[\]~#!]+))/;

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
  const [whole, single, double, escaped, plain = ""] = part.exec(text) ?? [];
  if (whole === undefined) return null;
  return { value: single ?? double?.replace(/\\([$`"\\])/g, "$1") ?? escaped ?? plain, length: whole.length };
}
