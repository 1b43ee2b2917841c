import type { Command } from "commander";
import {
  commandDefinitions,
  completeValuesName,
  type CommandDefinition,
  type OptionDefinition,
  type Shell,
  type ValueKind,
} from "../definitions.js";
import type { Entry } from "../../shared/config/types.js";
import { entryNames, tableNames } from "../../shared/config/entryNames.js";
import { resolveConfiguration } from "../support/configuration.js";
import type { Terminal } from "../terminal/terminal.js";

export function completion(terminal: Terminal, shell: Shell, _: unknown, { parent }: Command): Promise<number> {
  const commands = parent === null ? [] : commandDefinitions(parent);
  const scripts = { bash: bashScript, zsh: zshScript, fish: fishScript };
  terminal.write(scripts[shell](commands));
  return Promise.resolve(0);
}

const optionNames = (options: readonly OptionDefinition[]): readonly string[] => options.flatMap(({ names }) => names);

const withValue = (options: readonly OptionDefinition[], value: OptionDefinition["value"]): readonly string[] =>
  optionNames(options.filter((option) => option.value === value));

const statesOf = (options: readonly OptionDefinition[]): readonly string[] => options.flatMap(({ words }) => words);

/** They use the variables `place`, `command` and `previous`, and functions that each shell defines in its own way. */
function casesOf(commands: readonly CommandDefinition[]): string {
  const names = commands.flatMap((command) => command.names).join(" ");
  const cases = commands.map(({ names: called, options, choices }) => {
    const values = [
      [withValue(options, "path"), "_pg_task_files"],
      [withValue(options, "table"), "_pg_task_values table"],
      [withValue(options, "entry"), "_pg_task_values entry"],
      [withValue(options, "states"), `_pg_task_list ${statesOf(options).join(" ")}`],
      [withValue(options, "other"), ""],
    ] as const;
    return `    ${called.join("|")})
      case "$previous" in
${values.map(([flags, action]) => (flags.length === 0 ? "" : `        ${flags.join("|")}) ${action} ;;\n`)).join("")}\
        *) _pg_task_words ${[...choices, ...optionNames(options)].join(" ")} ;;
      esac ;;`;
  });
  return `  if [ "$place" -eq 1 ]; then
    _pg_task_words ${names} --help --version
    return
  fi
  case "$command" in
    help) _pg_task_words ${names} ;;
${cases.join("\n")}
  esac`;
}

/** bash evaluates what `compgen -W` gets, and the typed word still has its quotes: pg-task quotes names itself. */
const bashScript = (commands: readonly CommandDefinition[]): string => `# Completion of pg-task for bash
_pg_task_words() { COMPREPLY=($(compgen -W "$*" -- "$word")); }
_pg_task_files() { compopt -o default; }
# Completes the names of tables or entries in the configuration.
_pg_task_values() {
  mapfile -d '' -t COMPREPLY < <(pg-task ${completeValuesName} bash "$1" -- "\${words[@]:1}" "$word" "$replaced" 2>/dev/null)
}
# Completes the last word of a list with commas.
_pg_task_list() {
  local before=""
  case "$word" in *,*) before="\${word%,*}," ;; esac
  COMPREPLY=($(compgen -P "$before" -W "$*" -- "\${word##*,}"))
}
# Bash splits words at : and = unless they are quoted. This joins the parts that stand together on the line.
_pg_task() {
  local rest="$COMP_LINE" part gap words=()
  for part in "\${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
    gap="\${rest%%[![:blank:]]*}"
    rest="\${rest#"$gap"}"
    rest="\${rest#"$part"}"
    if [ -n "$gap" ] || [ "\${#words[@]}" -eq 0 ]; then words+=("$part"); else words[-1]+="$part"; fi
  done
  local place=$((\${#words[@]} - 1)) command="\${words[1]}" replaced="$part"
  local previous="\${words[place-1]}" word="\${words[place]}"
  case "$replaced" in [:=]) replaced="" ;; esac
  case "$word" in "$replaced") ;; --*=*) previous="\${word%%=*}" word="\${word#*=}" ;; esac
  unset "words[place]"
  COMPREPLY=()
${casesOf(commands)}
}
complete -F _pg_task pg-task
`;

const zshScript = (commands: readonly CommandDefinition[]): string => `# Completion of pg-task for zsh
autoload -U +X compinit && compinit
_pg_task_words() { compadd -- "$@" }
_pg_task_files() { _files }
# Completes the names of tables or entries in the configuration.
_pg_task_values() {
  compadd -- \${(0)"$(pg-task ${completeValuesName} zsh "$1" -- "\${(@Q)words[2,CURRENT]}" 2>/dev/null)"}
}
# Completes the last word of a list with commas.
_pg_task_list() { compset -P '*,'; compadd -- "$@" }
_pg_task() {
  local place=$((CURRENT - 1)) command="$words[2]" previous="$words[CURRENT-1]"
${casesOf(commands)}
}
compdef _pg_task pg-task
`;

const fishQuoted = (text: string): string => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;

function fishScript(commands: readonly CommandDefinition[]): string {
  const names = commands.flatMap((command) => command.names);
  const first = `-n ${fishQuoted(`not __fish_seen_subcommand_from ${names.join(" ")}`)}`;
  const lines = commands.flatMap((command) => {
    const { names: called, description, options } = command;
    const after = `-n ${fishQuoted(`__fish_seen_subcommand_from ${called.join(" ")}`)}`;
    return [
      ...command.choices.map((choice) => `complete -c pg-task -f ${after} -a ${choice}`),
      ...called.map((name) => `complete -c pg-task -f ${first} -a ${name} -d ${fishQuoted(description)}`),
      ...options.map((option) => `complete -c pg-task ${after} ${fishOption(option)}`),
    ];
  });
  return `# Completion of pg-task for fish\n${lines.join("\n")}\n`;
}

function fishOption({ names, description, value, words }: OptionDefinition): string {
  const flags = names.map((name) => (name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
  const valuesOf = (name: string): string =>
    `-x -a ${fishQuoted(`(pg-task ${completeValuesName} fish ${name} -- (commandline -opc)[2..] 2>/dev/null | string split0)`)}`;
  const kind = {
    path: "-r -F",
    table: valuesOf("table"),
    entry: valuesOf("entry"),
    // In a list with commas, fish completes each word by itself.
    states: `-x -a ${fishQuoted(`(__fish_append , ${words.join(" ")})`)}`,
    other: "-x",
  };
  const takes = value === null ? [] : [kind[value]];
  return [...flags, ...takes, `-d ${fishQuoted(description)}`].join(" ");
}

/** The names come from a file that may be anyone's. Each ends with a zero byte, and no shell may evaluate it. */
export async function completeValues(
  terminal: Terminal,
  shell: Shell,
  kind: ValueKind,
  words: readonly string[],
): Promise<number> {
  const isBash = shell === "bash";
  const plain = isBash ? words.slice(0, -1).map((word) => readBashWord(word).text) : words;
  const names = await readNames(terminal, kind, configIn(plain));
  const replies = isBash ? bashReplies(words.at(-2) ?? "", words.at(-1) ?? "", names) : names;
  terminal.write(replies.map((reply) => `${reply}\0`).join(""));
  return 0;
}

function configIn(words: readonly string[]): string | undefined {
  const option = words.findLastIndex((word) => word === "-c" || word === "--config" || word.startsWith("--config="));
  const word = words[option];
  return word?.startsWith("--config=") === true ? word.slice("--config=".length) : word && words[option + 1];
}

function bashReplies(word: string, replaced: string, names: readonly string[]): string[] {
  const typed = readBashWord(word, word.length - replaced.length);
  return names.filter((name) => name.startsWith(typed.text)).map((name) => replaceBashWord(typed, name));
}

/** Connects to no server. */
async function readNames(
  { cwd, env }: Terminal,
  kind: ValueKind,
  file: string | undefined,
): Promise<readonly string[]> {
  const explained = await resolveConfiguration({
    file,
    cwd,
    env,
    warn: () => {},
    lazySecrets: true,
  });
  const entries = explained?.configuration.entries ?? [];
  // Keys such as `host:5432/…` only repeat what the numbers and databases select.
  const namesOf = (entry: Entry): readonly string[] =>
    kind === "table" ? tableNames(entry) : entryNames(entries, entry).filter((name) => name !== entry.key);
  return [...new Set(entries.flatMap(namesOf))];
}

/** A word before bash has removed the quotes. The last quotation mark may still be open. */
interface BashWord {
  readonly text: string;
  /** Readline keeps the text up to the last quotation mark, or to a later character at which it splits words. */
  readonly kept: string;
  /** The quotation mark that is still open, or an empty string. */
  readonly quote: "" | "'" | '"';
}

/**
 * Expands nothing in it.
 *
 * @param from where the part begins that readline may replace
 */
function readBashWord(word: string, from = 0): BashWord {
  let text = "";
  let kept = "";
  let quote: BashWord["quote"] = "";
  for (let position = 0; position < word.length; position += 1) {
    const character = word.charAt(position);
    const next = word.charAt(position + 1);
    if (position === from) kept = text;
    if (character === quote || (quote === "" && (character === "'" || character === '"'))) {
      quote = quote === "" ? character : "";
      kept = text;
    } else if (character === "\\" && (quote === "" || (quote === '"' && /[\\$"`]/.test(next)))) {
      text += next;
      position += 1;
    } else text += character;
  }
  if (from === word.length) kept = text;
  return { text, kept, quote };
}

/** Returns what replaces a word that is to become `value`, which begins with the word's text. */
function replaceBashWord({ kept, quote }: BashWord, value: string): string {
  const rest = value.slice(kept.length);
  if (quote === "") {
    return control.test(rest) ? ansiQuoted(rest) : rest.replace(/[^\w./%+,\u0080-\uffff-]/g, String.raw`\$&`);
  }
  // What the quotes cannot hold follows outside of them. Within double quotes, bash also expands the history (`!`).
  const outside = (text: string): string => quote + (control.test(text) ? ansiQuoted(text) : `\\${text}`) + quote;
  const escaped = quote === "'" ? rest : rest.replace(/[\\$"`]/g, String.raw`\$&`);
  // Readline closes the quotes itself, but not after a value that ends with such a mark.
  return escaped.replace(new RegExp(`${quote === "'" ? "'" : "!"}|${control.source}`, "gu"), outside) + quote;
}

const control = /[^\P{Cc}\u0080-\u009f]/u;

const octal = (character: string): string => `\\${character.charCodeAt(0).toString(8).padStart(3, "0")}`;

/** Quotes a text in the form for control characters, such as `$'a\012b'`. */
const ansiQuoted = (text: string): string =>
  `$'${text.replace(/[\\']/g, String.raw`\$&`).replace(new RegExp(control, "gu"), octal)}'`;
