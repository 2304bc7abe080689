// Markdown as elements.

import { codeShown, languageOf } from "./code.js";
import { add, el } from "./text.js";

/** Called when what is shown grew, to keep the end in sight. */
export const growth = { follow: null };

const MAX_INLINE = 8_000;
const MAX_DEPTH = 6;

// Each is tried where its first character stands. Links and images are shown, not followed and not loaded.
const INLINE = [
  [/(`+)(?!`)([^]*?[^`])\1(?!`)/y, (m) => el("code", {}, m[2].replace(/^ (.*) $/s, "$1"))],
  [/(\*\*|__)(?=\S)([^]*?\S)\1/y, (m, depth) => inline(el("strong"), m[2], depth)],
  [/\*(?=[^\s*])([^*]*?[^\s*])\*/y, (m, depth) => inline(el("em"), m[1], depth)],
  [/\b_(?=[^\s_])([^_]*?[^\s_])_\b/y, (m, depth) => inline(el("em"), m[1], depth)],
  [/~~(?=\S)([^~]*?\S)~~/y, (m, depth) => inline(el("s"), m[1], depth)],
  [/!\[([^\]]*)\]\(((?:[^()\s]|\([^()\s]*\))*)[^()]*\)/y, (m) => el("span", { class: "address" }, `image ${m[1]} (${m[2]})`)],
  [
    /\[([^\[\]]+)\]\(((?:[^()\s]|\([^()\s]*\))*)[^()]*\)/y,
    (m, depth) => add(inline(el("span"), m[1], depth), el("span", { class: "address" }, ` (${m[2]})`)),
  ],
];

function inline(node, text, depth = 0) {
  if (text.length > MAX_INLINE || depth > MAX_DEPTH) return add(node, text);
  let from = 0;
  let at = 0;
  const special = /[`*_~!\[\\]/g;
  while (at < text.length) {
    special.lastIndex = at;
    const next = special.exec(text);
    if (!next) break;
    at = next.index;
    if (text[at] === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
      add(node, text.slice(from, at), text[at + 1]);
      from = at += 2;
      continue;
    }
    let made;
    for (const [pattern, make] of INLINE) {
      pattern.lastIndex = at;
      const m = pattern.exec(text);
      if (!m) continue;
      made = make(m, depth + 1);
      add(node, text.slice(from, at), made);
      from = at += m[0].length;
      break;
    }
    if (!made) at += text[at] === "`" ? /`+/y.exec(text.slice(at))[0].length : 1;
  }
  return add(node, text.slice(from));
}

/** A text of aye's own, which has names and commands in backticks. */
export const own = (text) => String(text).split(/`([^`]+)`/).map((part, at) => (at % 2 ? el("code", {}, part) : part));

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*)|)$/;
const TABLE = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const startsBlock = (line) =>
  FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);

/** The blocks of a text: what kind, and its lines. */
function blocksOf(text) {
  const lines = text.split(/\r?\n/);
  const blocks = [];
  let at = 0;
  const take = (kind, end) => {
    blocks.push({ kind, source: lines.slice(at, end).join("\n") });
    at = end;
  };
  while (at < lines.length) {
    const line = lines[at];
    if (!line.trim()) {
      at += 1;
      continue;
    }
    let end = at + 1;
    const fence = FENCE.exec(line);
    if (fence) {
      const close = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},}\\s*$`);
      while (end < lines.length && !close.test(lines[end])) end += 1;
      take("code", Math.min(end + 1, lines.length));
    } else if (HEADING.test(line)) {
      take("heading", end);
    } else if (RULE.test(line)) {
      take("rule", end);
    } else if (QUOTE.test(line)) {
      while (end < lines.length && lines[end].trim() && (QUOTE.test(lines[end]) || !startsBlock(lines[end]))) end += 1;
      take("quote", end);
    } else if (ITEM.test(line)) {
      while (end < lines.length) {
        const here = lines[end];
        const isBlank = !here.trim();
        const belongs = ITEM.test(here) || /^\s{2,}/.test(here);
        if (isBlank ? !/^\s{2,}\S/.test(lines[end + 1] ?? "") && !ITEM.test(lines[end + 1] ?? "") : false) break;
        if (!isBlank && !belongs && (startsBlock(here) || !lines[end - 1].trim())) break;
        end += 1;
      }
      take("list", end);
    } else if (line.includes("|") && TABLE.test(lines[at + 1] ?? "") && (lines[at + 1] ?? "").includes("-")) {
      end += 1;
      while (end < lines.length && lines[end].includes("|")) end += 1;
      take("table", end);
    } else {
      while (end < lines.length && lines[end].trim() && !startsBlock(lines[end])) end += 1;
      take("text", end);
    }
  }
  return blocks;
}

const cellsOf = (row) => row.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));

function renderBlock({ kind, source }, depth) {
  const lines = source.split("\n");
  switch (kind) {
    case "code": {
      const fence = FENCE.exec(lines[0]);
      const closes = lines.length > 1 && /^ {0,3}(`{3,}|~{3,})\s*$/.test(lines.at(-1));
      const body = lines.slice(1, closes ? -1 : undefined).join("\n");
      const language = fence[2].trim().split(/\s/)[0];
      return el("pre", { class: "code", tabindex: "0", "data-language": language || null }, el("code", {}, codeShown(body, languageOf(language))));
    }
    case "heading": {
      const [, marks, text] = HEADING.exec(source);
      return inline(el(`h${Math.min(6, marks.length + 2)}`), text);
    }
    case "rule":
      return el("hr");
    case "quote":
      return renderBlocks(el("blockquote"), lines.map((line) => line.replace(QUOTE, "")).join("\n"), depth + 1);
    case "list":
      return renderList(lines, depth);
    case "table": {
      const row = (line, name) => el("tr", {}, cellsOf(line).map((cell) => inline(el(name), cell)));
      const body = lines.slice(2).map((line) => row(line, "td"));
      const table = el("table", {}, el("thead", {}, row(lines[0], "th")), el("tbody", {}, body));
      return el("div", { class: "table", tabindex: "0" }, table);
    }
    default:
      return inline(el("p"), source);
  }
}

function renderList(lines, depth) {
  const first = ITEM.exec(lines[0]);
  const indent = first[1].length;
  const isOrdered = /\d/.test(first[2]);
  const list = el(isOrdered ? "ol" : "ul", isOrdered ? { start: String(parseInt(first[2], 10)) } : {});
  // What is indented further belongs to the item; how far does not matter, only that it is.
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent + 1) items.push([item[3] ?? ""]);
    else items.at(-1).push(line.slice(Math.min(indent + 2, line.length - line.trimStart().length)));
  }
  for (const item of items) {
    const text = item.join("\n");
    const task = /^\[([ xX])\]\s+/.exec(text);
    const node = el("li", task ? { class: "task" } : {});
    if (task) add(node, task[1] === " " ? "☐ " : "☑ ");
    renderBlocks(node, task ? text.slice(task[0].length) : text, depth + 1);
    // A list of short items stands close.
    if (node.children.length && node.firstElementChild.tagName === "P") node.firstElementChild.replaceWith(...node.firstElementChild.childNodes);
    list.append(node);
  }
  return list;
}

function renderBlocks(node, text, depth = 0) {
  if (depth > MAX_DEPTH) return add(node, text);
  for (const block of blocksOf(text)) node.append(renderBlock(block, depth));
  return node;
}

/** Markdown that grows: only the blocks that changed are made again. */
export class Prose {
  constructor() {
    this.node = el("div", { class: "prose" });
    this.text = "";
    this.blocks = [];
    this.isDue = false;
  }

  add(text) {
    this.text += text;
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.draw();
    });
  }

  set(text) {
    this.text = text;
    this.draw();
    return this;
  }

  draw() {
    const blocks = blocksOf(this.text);
    let same = 0;
    while (
      same < blocks.length &&
      same < this.blocks.length &&
      blocks[same].kind === this.blocks[same].kind &&
      blocks[same].source === this.blocks[same].source
    ) {
      same += 1;
    }
    while (this.node.children.length > same) this.node.lastElementChild.remove();
    for (const block of blocks.slice(same)) this.node.append(renderBlock(block, 0));
    this.blocks = blocks;
    growth.follow?.();
  }
}
