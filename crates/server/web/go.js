// Goes where the address says.

import { openLinked, placeCards, updateCounts } from "./inbox.js";
import { list } from "./list.js";
import { $, narrow } from "./page.js";
import { readRoute } from "./route.js";
import { newConversation } from "./start.js";
import { armCards, state } from "./state.js";
import { Talk } from "./talk.js";
import { button, el, fill } from "./text.js";

export function go() {
  if (!state.token) return;
  const before = state.route;
  state.route = readRoute();
  document.body.dataset.view = state.route.view;
  for (const tab of document.querySelectorAll("#tabs a")) {
    const isHere = tab.dataset.tab === (state.route.view === "inbox" ? "inbox" : "list");
    if (isHere) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  if (state.route.view === "talk") {
    const isSame = state.talk && state.talk.id === state.route.id && (state.route.id || state.talk.folder === (state.route.folder ?? state.me.default_folder));
    if (!isSame) {
      state.talk?.close();
      state.talk = new Talk(state.route.id, state.route.id ? null : (state.route.folder ?? state.me.default_folder));
      const known = list.items.find((item) => item.id === state.route.id);
      if (known) {
        state.talk.title = known.title;
        state.talk.folder = known.cwd;
        state.talk.drawHead();
      }
      if (!narrow.matches || !state.route.id) state.talk.text.focus();
    }
  } else if (narrow.matches && state.talk) {
    state.talk.close();
    state.talk = null;
  }
  if (!state.talk) drawNothing();
  list.draw();
  placeCards();
  updateCounts();
  if (before.view !== state.route.view) armCards();
  if (state.route.card && state.hasInbox) openLinked(state.route.card);
}

function drawNothing() {
  fill($("talk"), el("div", { class: "nothing" }, el("p", {}, "Choose a conversation, or start a new one."), button("New conversation", "secondary", newConversation)));
}
