// Diffs as elements.

import { languageOf, marked, MAX_COLOURED, tokens } from "./code.js";
import { el } from "./text.js";

/** `path` names the file, for the colours of its language; without it the diff's own header does. */
export function renderDiff(diff, path) {
  const rows = [];
  let [old, now, isHeader, isFirst] = [1, 1, true, true];
  for (const line of diff.replace(/\n$/, "").split("\n")) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/.exec(line);
    if (hunk) {
      [old, now] = [Number(hunk[1]), Number(hunk[2])];
      isHeader = false;
      rows.push({ kind: "hunk", text: isFirst && !hunk[3].trim() ? `line ${now}` : `line ${now}${hunk[3]}` });
      isFirst = false;
      continue;
    }
    if (isHeader && /^(diff |index |--- |\+\+\+ |new file|deleted file|similarity|rename )/.test(line)) {
      if (!path && line.startsWith("+++ ")) path = line.slice(4).trim();
      continue;
    }
    const sign = line[0] ?? " ";
    if (sign === "\\") {
      rows.push({ kind: "hunk", text: line.slice(2) });
      continue;
    }
    isHeader = false;
    const [kind, number] = sign === "+" ? ["ins", now++] : sign === "-" ? ["del", old++] : ["ctx", (old++, now++)];
    rows.push({ kind, number, sign: kind === "ctx" ? " " : sign, text: line.slice(1) });
  }
  if (rows.length <= MAX_COLOURED) markWords(rows);
  const language = rows.length <= MAX_COLOURED ? languageOf(path) : undefined;
  return el("div", { class: "diff code" }, rows.map((row) => {
    if (row.kind === "hunk") return el("div", { class: "hunk" }, row.text);
    const marks = tokens(row.text, language);
    if (row.word) marks.push([...row.word, "changed"]);
    return el("div", { class: row.kind, "data-line": String(row.number), "data-sign": row.sign }, el("span", { class: "text" }, marked(row.text, marks)));
  }));
}

/** Marks what differs between lines that replace each other, when they have most in common. */
function markWords(rows) {
  for (let at = 0; at < rows.length; at += 1) {
    if (rows[at].kind !== "del") continue;
    const from = at;
    while (rows[at + 1]?.kind === "del") at += 1;
    const count = at + 1 - from;
    if (rows[at + count]?.kind !== "ins" || rows[at + count + 1]?.kind === "ins") continue;
    for (let pair = from; pair <= at; pair += 1) markPair(rows[pair], rows[pair + count]);
  }
}

function markPair(old, now) {
  if (now?.kind !== "ins") return;
  // By characters: half of one is none.
  const [a, b] = [[...old.text], [...now.text]];
  const most = Math.min(a.length, b.length);
  let start = 0;
  while (start < most && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < most - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  if (start + end < 0.4 * most || a.slice(0, start).join("").trim() + a.slice(a.length - end).join("").trim() === "") return;
  for (const [row, letters] of [[old, a], [now, b]]) {
    const before = letters.slice(0, start).join("").length;
    const word = letters.slice(start, letters.length - end).join("").length;
    if (word) row.word = [before, before + word];
  }
}

export const looksLikeDiff = (text) => typeof text === "string" && /^(--- |\+\+\+ |@@ -)/m.test(text) && /^@@ -\d/m.test(text);
