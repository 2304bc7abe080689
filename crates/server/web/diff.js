// Diffs as elements.

import { el } from "./text.js";

export function renderDiff(diff) {
  const box = el("div", { class: "diff" });
  let old = 1;
  let now = 1;
  let isHeader = true;
  let isFirst = true;
  const lines = diff.replace(/\n$/, "").split("\n");
  for (const line of lines) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/.exec(line);
    if (hunk) {
      [old, now] = [Number(hunk[1]), Number(hunk[2])];
      isHeader = false;
      box.append(el("div", { class: "hunk" }, isFirst && !hunk[3].trim() ? `line ${now}` : `line ${now}${hunk[3]}`));
      isFirst = false;
      continue;
    }
    if (isHeader && /^(diff |index |--- |\+\+\+ |new file|deleted file|similarity|rename )/.test(line)) continue;
    const sign = line[0] ?? " ";
    if (sign === "\\") {
      box.append(el("div", { class: "hunk" }, line.slice(2)));
      continue;
    }
    isHeader = false;
    const [kind, number] = sign === "+" ? ["ins", now++] : sign === "-" ? ["del", old++] : ["ctx", (old++, now++)];
    const text = el("span", { class: "text" }, line.slice(1));
    box.append(el("div", { class: kind, "data-line": String(number), "data-sign": kind === "ctx" ? " " : sign }, text));
  }
  return box;
}

export const looksLikeDiff = (text) => typeof text === "string" && /^(--- |\+\+\+ |@@ -)/m.test(text) && /^@@ -\d/m.test(text);
