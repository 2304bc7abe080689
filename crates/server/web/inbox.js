// The inbox: the questions that are open, each as a card in its place.

import { Card, fetchCard } from "./card.js";
import { announceNotice } from "./connection.js";
import { list } from "./list.js";
import { $, announce, calm, narrow } from "./page.js";
import { Stream } from "./server.js";
import { startButton } from "./start.js";
import { armCards, cards, state } from "./state.js";
import { fill, oneLine, plain } from "./text.js";
import { count } from "./words.js";

const EVENTS = {
  closed() {
    updateCounts();
    state.talk?.cardsChanged();
  },
  gone(heldFocus) {
    if (heldFocus) focusNextCard();
    updateCounts();
  },
};

export function focusNextCard() {
  const next = [...cards.values()].find((card) => !card.isClosed && card.node.isConnected);
  (next?.node ?? document.querySelector("#talk textarea") ?? document.body).focus();
}

export const watch = new Stream("the inbox", {
  path: () => "/v1/approvals/watch",
  frame(event, data) {
    if (event === "snapshot") {
      const items = data.items ?? [];
      const ids = new Set(items.map((card) => card.id));
      const isFirst = !state.hasInbox;
      state.hasInbox = true;
      for (const card of [...cards.values()]) if (!ids.has(card.id) && !card.isClosed) answeredMeanwhile(card);
      for (const card of items) takeCard(card, !isFirst);
      updateCounts();
      if (isFirst && state.route.card) openLinked(state.route.card);
      if (isFirst && items.length) announce(`${count(items.length, "question")} in the inbox.`);
    } else if (event === "asked") {
      takeCard(data, true);
      list.refreshSoon();
    } else if (event === "closed") {
      cards.get(data.id)?.close(data);
      list.refreshSoon();
    }
  },
});
async function answeredMeanwhile(card) {
  const data = await fetchCard(card.id);
  if (data?.status === "open") return;
  card.close(data ?? { ...card.data, status: "decided" });
}

export function takeCard(data, isNews) {
  if (data.status && data.status !== "open") {
    cards.get(data.id)?.close(data);
    return;
  }
  data.status = "open";
  const known = cards.get(data.id);
  if (known && !known.isClosed) {
    known.take(data);
  } else {
    known?.node.remove();
    cards.set(data.id, new Card(data, EVENTS));
    if (isNews) announce(`New question: ${oneLine(data.title)}, in ${oneLine(data.thread_title)}.`);
  }
  placeCards();
  updateCounts();
  state.talk?.cardsChanged();
}

/** Puts each card where it belongs: beside its conversation on a small screen, into the inbox otherwise. */
export function placeCards() {
  const sorted = [...cards.values()].sort((a, b) => a.data.created_at - b.data.created_at || (a.id < b.id ? -1 : 1));
  const last = new Map();
  for (const card of sorted) {
    const isBeside = narrow.matches && state.route.view === "talk" && state.talk?.id === card.data.thread_id;
    const parent = isBeside ? state.talk.cardSlot : $("cards");
    const before = last.get(parent);
    const next = before ? before.nextSibling : parent.firstChild;
    if (card.node.parentNode !== parent || (next !== card.node && card.node.previousSibling !== (before ?? null))) {
      parent.insertBefore(card.node, next);
      armCards();
    }
    last.set(parent, card.node);
  }
}

export function updateCounts() {
  const open = [...cards.values()].filter((card) => !card.isClosed).length;
  fill($("inbox-count"), open ? `${open} waiting` : "");
  $("tab-count").hidden = !open;
  $("tab-count").textContent = String(open);
  document.title = `${open ? `(${open}) ` : ""}${state.talk?.title ? `${plain(oneLine(state.talk.title))} · ` : ""}aye`;
  const empty = $("cards-empty");
  empty.hidden = $("cards").childElementCount > 0 || !state.hasInbox;
  const isBeside = open > 0;
  fill(empty, isBeside ? "" : "No pending questions. New ones appear here.", !isBeside && startButton());
}

export function showCard(id) {
  const card = cards.get(id);
  if (!card) return false;
  if (narrow.matches && !card.node.offsetParent) location.hash = "#/inbox";
  requestAnimationFrame(() => {
    card.node.focus();
    card.node.scrollIntoView({ block: "nearest", behavior: calm() });
  });
  return true;
}

/** A link to a card that is no longer open says how it was answered. */
export async function openLinked(id) {
  if (showCard(id)) return;
  const data = await fetchCard(id);
  if (!data) {
    announceNotice("That question no longer exists.");
  } else if (data.status === "open") {
    takeCard(data, false);
    showCard(id);
  } else {
    const card = new Card({ ...data, status: "open" }, EVENTS);
    cards.set(id, card);
    placeCards();
    card.close(data);
    card.node.focus();
  }
}
