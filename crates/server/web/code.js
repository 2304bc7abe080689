// Colours of code: enough to read a change by, from the words of a line alone.

import { el } from "./text.js";

/** Longer lines, and those with more parts, are data: nobody reads their colours. */
const MAX_LINE = 400;
const MAX_PARTS = 100;
/** More lines have no colours: laying them out would take longer than reading the first page. */
export const MAX_COLOURED = 3_000;

const WORDS = {
  c: "auto bool break case catch char class const continue default delete do double else enum explicit extern float for if inline int long namespace new private protected public return short signed sizeof static struct switch template this throw try typedef typename union unsigned using virtual void volatile while true false nullptr NULL abstract extends final finally implements import instanceof interface null package super synchronized throws var foreach in is override string",
  go: "break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var nil true false",
  js: "as async await break case catch class const continue default delete do else enum export extends finally for from function get if implements import in instanceof interface let new null of private protected public readonly return set static super switch this throw try type typeof undefined var void while yield true false",
  py: "and as assert async await break class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield True False None self end elsif module require then unless until do",
  rs: "as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait type unsafe use where while true false",
  sh: "case do done elif else esac export fi for function if in local return select then until while cd exec set source sudo unset",
  sql: "select from where and or not in insert into values update set delete create table index view drop alter join left right inner outer on as group by order having limit union all distinct null is like between case when then else end primary key references default",
};
const STRING = String.raw`"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?`;
const [SLASHES, HASH, DASHES] = [String.raw`\/\/.*|\/\*.*?(?:\*\/|$)`, "(?<![^\\s;(])#.*", "--.*"];

/** A language: its comments, its strings, its words. */
const language = (comment, string, words = "", { ignoresCase = false, number = "\\b\\d[\\w.]*", called = "" } = {}) => ({
  words: new Set(words.split(" ")),
  ignoresCase,
  token: new RegExp(
    [
      `(?<c>${comment || "(?!)"})|(?<s>${string})|(?<n>${number})|(?<f>${called || "(?!)"})`,
      String.raw`(?<w>[\p{L}_$][\p{L}\p{M}\p{N}_]*!?)`,
    ].join("|"),
    "gu",
  ),
});
const LANGUAGES = {
  c: language(SLASHES, STRING, WORDS.c),
  go: language(SLASHES, `${STRING}|\`[^\`]*\`?`, WORDS.go),
  js: language(SLASHES, `${STRING}|\`(?:\\\\.|[^\`\\\\])*\`?`, WORDS.js),
  py: language(HASH, STRING, WORDS.py),
  // A lifetime is no string.
  rs: language(SLASHES, String.raw`b?r?#*"(?:\\.|[^"\\])*"?|'(?:\\(?:x..|u\{[^}]*\}|.)|[^'\\])'`, WORDS.rs),
  // A number in a name is none, and what runs comes first.
  sh: language(HASH, STRING, WORDS.sh, { number: "(?<!\\S)\\d+(?!\\S)", called: "(?<=(?:^|&&|[|;(])\\s*)[\\w.\\/+-]+" }),
  sql: language(DASHES, STRING, WORDS.sql, { ignoresCase: true }),
  // Settings, and what has no words of its own.
  data: language(HASH, STRING, "true false null yes no on off"),
  json: language("", STRING, "true false null"),
  css: language(SLASHES, STRING),
};
/** Endings of file names, and what code blocks call their language. */
const BY_NAME = {
  c: "c cc cpp cxx h hh hpp cs java kt kts scala swift dart m php groovy proto zig c++ csharp kotlin objc",
  go: "go golang mod",
  js: "js jsx mjs cjs ts tsx mts cts vue svelte javascript typescript",
  py: "py pyi rb pl pm r jl ex exs nix cr python ruby perl elixir",
  rs: "rs rust",
  sh: "sh bash zsh fish ksh makefile mk dockerfile containerfile shell shellscript console",
  sql: "sql",
  data: "toml yaml yml ini cfg conf env properties gitignore tf hcl",
  json: "json jsonc json5 jsonl ipynb",
  css: "css scss less",
};
const OF_NAME = new Map(Object.entries(BY_NAME).flatMap(([name, endings]) => endings.split(" ").map((ending) => [ending, LANGUAGES[name]])));

/** The language of a file by its name, or of a code block; `undefined` has no colours. */
export const languageOf = (path) => OF_NAME.get(String(path ?? "").split(/[/.]/).at(-1).toLowerCase());

/** Marks for parts of a line: `[from, to, class]`, in order. */
export function tokens(line, language) {
  if (!language || line.length > MAX_LINE) return [];
  const marks = [];
  for (const found of line.matchAll(language.token)) {
    const { c, s, n, f } = found.groups;
    const w = f ?? found.groups.w;
    const isWord = w && language.words.has(language.ignoresCase ? w.toLowerCase() : w);
    const isCalled = f || (w && (w.endsWith("!") || line[found.index + w.length] === "("));
    const style = c ? "comment" : s ? "string" : n ? "number" : isWord ? "keyword" : isCalled ? "called" : null;
    if (style) marks.push([found.index, found.index + found[0].length, style]);
  }
  return marks.length > MAX_PARTS ? [] : marks;
}

/** A line as elements: `marks` give each part its classes, and a part can have several. */
export function marked(line, marks) {
  if (!marks.length) return line ? [line] : [];
  const styles = new Array(line.length).fill("");
  for (const [from, to, style] of marks) for (let at = from; at < to; at += 1) styles[at] += ` ${style}`;
  const parts = [];
  for (let from = 0, at = 1; at <= line.length; at += 1) {
    if (at < line.length && styles[at] === styles[from]) continue;
    const text = line.slice(from, at);
    parts.push(styles[from] ? el("span", { class: styles[from].trim() }, text) : text);
    from = at;
  }
  return parts;
}

const joined = (lines) => lines.flatMap((parts, at) => (at ? ["\n", ...parts] : parts));

/** Code as the parts of its element. */
export function codeShown(text, language) {
  const lines = text.split("\n");
  if (!language || lines.length > MAX_COLOURED) return [text];
  return joined(lines.map((line) => marked(line, tokens(line, language))));
}

/** A command in colours; the words that make it dangerous stand out from all others. */
export function commandShown(command, danger = []) {
  const isEdge = (c) => !c || !/[\p{L}\p{N}_.-]/u.test(c);
  const lines = command.split("\n").map((line) => {
    const marks = tokens(line, LANGUAGES.sh);
    for (const word of danger.filter(Boolean)) {
      for (let at = line.indexOf(word); at >= 0; at = line.indexOf(word, at + 1)) {
        const end = at + word.length;
        if (isEdge(line[at - 1]) && isEdge(line[end])) marks.push([at, end, "dangerous"]);
      }
    }
    return marked(line, marks);
  });
  return el("pre", { class: "call code" }, joined(lines));
}
