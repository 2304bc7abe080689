// The page of `aye serve`: the inbox of all conversations, and the conversations themselves. Here are its keys, and what it
// listens to.

import { retryNow } from "./connection.js";
import { go } from "./go.js";
import { focusNextCard } from "./inbox.js";
import { list } from "./list.js";
import { $, isTyping, narrow } from "./page.js";
import { safeDecode } from "./route.js";
import { streams } from "./server.js";
import { enter, showSignIn, signedOut, signIn, takeFragment } from "./sign-in.js";
import { newConversation } from "./start.js";
import { armCards, cards, state } from "./state.js";
import { keep } from "./storage.js";
import { el, fill } from "./text.js";

/* ---------- keys ---------- */

const KEYS = [
  ["i", "first question in the inbox"],
  ["j k", "next, previous question"],
  ["y", "approve the focused question, once it was read to its end"],
  ["n", "deny it, with or without a reason"],
  ["e", "edit its arguments"],
  ["r", "request changes"],
  ["a", "always allow"],
  ["m", "write a message"],
  ["c", "new conversation"],
  ["Enter", "send; Shift+Enter starts a new line"],
  ["Esc", "close, or back to the list"],
  ["?", "these keys"],
];

function showHelp() {
  fill($("help-keys"), KEYS.map(([key, text]) => el("div", {}, el("dt", {}, key.split(" ").map((one) => el("kbd", {}, one))), el("dd", {}, text))));
  $("help").showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || $("app").hidden) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape" && isTyping(event.target)) return event.target.blur();
  if (event.key === "Escape" && narrow.matches && state.route.view === "talk") return void (location.hash = "#/conversations");
  if (isTyping(event.target) || event.repeat) return;
  const run = {
    "?": showHelp,
    i: () => {
      if (narrow.matches) location.hash = "#/inbox";
      requestAnimationFrame(focusNextCard);
    },
    m: () => state.talk?.text.focus(),
    c: newConversation,
  }[event.key];
  if (!run) return;
  event.preventDefault();
  run();
});

/* ---------- start ---------- */

$("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("sign-in-token").value.trim();
  const found = /[#&](code|token)=([^&\s]+)/.exec(text);
  if (found) signIn(found[1], safeDecode(found[2]));
  else if (text) signIn("token", text);
});
$("sign-out").addEventListener("click", () => {
  keep.clear();
  history.replaceState(null, "", location.pathname);
  signedOut("Signed out. The token and all drafts are removed from this browser.");
});
$("help-open").addEventListener("click", showHelp);
$("new").addEventListener("click", newConversation);
$("threads-more").addEventListener("click", () => {
  list.limit = Math.min(200, list.limit + 50);
  list.refresh();
});
addEventListener("hashchange", () => takeFragment() || go());
narrow.addEventListener("change", () => state.token && go());
addEventListener("online", retryNow);
addEventListener("offline", () => {
  // What is open may be dead without saying so. A server on this device is back at once.
  for (const stream of streams) stream.abort?.abort();
});
// Signing out in one window signs all of them out.
addEventListener("storage", (event) => {
  if (event.key === "aye.token" && !event.newValue && state.token) signedOut("Signed out in another window.");
  else if (event.key === "aye.token" && event.newValue && !state.token) location.reload();
});
document.addEventListener("visibilitychange", () => {
  armCards();
  clearTimeout(state.talk?.restTimer);
  if (!state.talk?.stream) return void (document.hidden || list.refresh());
  // Browsers allow few connections to a server: a hidden window keeps only the inbox's.
  if (document.hidden) state.talk.restTimer = setTimeout(() => state.talk?.stream?.stop(), 30_000);
  else {
    state.talk.stream.start();
    retryNow();
    list.refresh();
  }
});
setInterval(() => {
  for (const card of cards.values()) if (!card.isClosed) card.tick();
}, 1000);
setInterval(() => document.hidden || list.refresh(), 20_000);

if (!takeFragment()) {
  state.token = keep.get("token");
  if (state.token) enter();
  else showSignIn();
}
