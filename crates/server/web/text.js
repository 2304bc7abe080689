// Foreign text on the page, and the elements that hold it.
//
// Everything that models, tools, files and other people wrote is data. It becomes text nodes, never markup, and it
// passes `visible` on its way there: `el` does that with every string, so forgetting is impossible.

// The classes of `crates/core/src/contract/display.rs`, and lone surrogates, which only JavaScript can hold.
const UNSAFE = new RegExp(
  "\\r\\n|[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5" +
    "\\u180b-\\u180f\\u200b\\u200c\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ufeff\\uffa0" +
    "\\ufe00-\\ufe0e\\ufff0-\\ufffb\\u{110bd}\\u{110cd}\\u{13430}-\\u{1345f}\\u{1bca0}-\\u{1bca3}" +
    "\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}\\u{10eeee}]|\\p{Cs}",
  "gu",
);

/** Spells an unsafe character out: C0 controls as `^[`, all others as `⟨U+202E⟩`. */
function spelled(c) {
  const code = c.codePointAt(0);
  if (code < 0x20) return "^" + String.fromCharCode(code + 0x40);
  if (code === 0x7f) return "^?";
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** For attributes and the window's title, which cannot hold elements. */
export const plain = (text) => String(text).replace(UNSAFE, (c) => (c === "\r\n" ? "\n" : spelled(c)));

/** On one line. */
export const oneLine = (text) => String(text ?? "").replace(/\r?\n/g, "⏎").replace(/\t/g, " ");

/** Appends text whose unsafe characters are spelled out and marked. */
function visible(parent, text) {
  text = String(text);
  let from = 0;
  for (const found of text.matchAll(UNSAFE)) {
    if (found.index > from) parent.append(text.slice(from, found.index));
    from = found.index + found[0].length;
    if (found[0] === "\r\n") {
      parent.append("\n");
      continue;
    }
    const mark = document.createElement("span");
    mark.className = "ctl";
    mark.textContent = spelled(found[0]);
    parent.append(mark);
  }
  if (from < text.length) parent.append(text.slice(from));
}

/** Makes an element. Strings among the children are foreign text until proven otherwise. */
export function el(name, about = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(about)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "on") for (const [event, call] of Object.entries(value)) node.addEventListener(event, call);
    else if (key === "class") node.className = value;
    else node.setAttribute(key, value === true ? "" : plain(value));
  }
  add(node, ...children);
  return node;
}

export function add(node, ...children) {
  for (const child of children.flat()) {
    if (child === undefined || child === null || child === false) continue;
    if (child instanceof Node) node.append(child);
    else visible(node, child);
  }
  return node;
}

export const fill = (node, ...children) => add((node.replaceChildren(), node), ...children);
export const button = (text, style, click, about = {}) => el("button", { type: "button", class: style, on: { click }, ...about }, text);
