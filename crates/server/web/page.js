// What the page's parts use of the browser.

import { plain } from "./text.js";

export const $ = (id) => document.getElementById(id);
export const narrow = matchMedia("(max-width: 1099px)");

export function announce(text) {
  const live = $("live");
  live.textContent = "";
  setTimeout(() => (live.textContent = plain(text)), 50);
}

export const isTyping = (node) => node instanceof HTMLElement && (node.isContentEditable || /^(TEXTAREA|SELECT)$/.test(node.tagName) || (node.tagName === "INPUT" && !/^(radio|checkbox)$/.test(node.type)));
export const isPlainEnter = (event) => event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey && !event.isComposing && event.keyCode !== 229;
export const calm = () => (matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth");
export const sentence = (text) => {
  const s = String(text).trim();
  return s.charAt(0).toUpperCase() + s.slice(1) + (/[.!?…]$/.test(s) ? "" : ".");
};

/** Also where `crypto.randomUUID` does not exist: on a page that came over plain HTTP. */
export const freshId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
