// Signing in and out.

import { announceNotice, forgetConnection, showLost } from "./connection.js";
import { go } from "./go.js";
import { updateCounts, watch } from "./inbox.js";
import { list } from "./list.js";
import { $, sentence } from "./page.js";
import { safeDecode } from "./route.js";
import { api, refused, request, Unreachable } from "./server.js";
import { cards, may, state } from "./state.js";
import { keep } from "./storage.js";
import { fill, plain } from "./text.js";

/** Takes a code or token out of the address, at once: the address is shown, shared and kept in histories. */
export function takeFragment() {
  const found = /[#&](code|token)=([^&]+)/.exec(location.hash);
  if (!found) return false;
  const card = /^#\/card\/[^&]+/.exec(location.hash)?.[0] ?? "";
  history.replaceState(null, "", location.pathname + card);
  signIn(found[1], safeDecode(found[2]));
  return true;
}

export async function signIn(kind, value) {
  const error = $("sign-in-error");
  error.hidden = true;
  const submit = $("sign-in-form").querySelector("button");
  submit.disabled = true;
  fill(submit, "Signing in…");
  const before = state.token;
  try {
    if (kind === "code") {
      state.token = null;
      state.token = (await api("POST", "/v1/sign-in", { code: value })).token;
    } else {
      state.token = null;
      const found = await fetchMe(value);
      state.me = found;
      state.token = value;
    }
    keep.set("token", state.token);
    $("sign-in-token").value = "";
    await enter();
  } catch (problem) {
    state.token = before;
    if (before) {
      await enter();
      announceNotice("The code in the URL is no longer valid; you are still signed in.");
      return;
    }
    showSignIn();
    error.hidden = false;
    let text = sentence(problem.message);
    if (problem instanceof Unreachable) text = "The server is not reachable. Try again in a moment.";
    else if (problem.status === 401 && kind === "code") text = "This code was used or is older than five minutes. Scan a new one, or paste a token.";
    else if (problem.status === 401) text = "This token is not valid. Check that it is complete.";
    fill(error, text);
  } finally {
    submit.disabled = false;
    fill(submit, "Sign in");
  }
}

async function fetchMe(candidate) {
  const response = await request("GET", "/v1/me", { headers: { authorization: `Bearer ${candidate}` }, signal: AbortSignal.timeout?.(30_000) });
  return response.json();
}

export function showSignIn(why) {
  $("app").hidden = true;
  $("sign-in").hidden = false;
  if (why) fill($("sign-in-why"), why);
  $("sign-in-token").focus();
}

/** Shows the page. Who one is may be learned later, when the server is not reachable yet. */
export async function enter(attempt = 0) {
  $("sign-in").hidden = true;
  $("app").hidden = false;
  try {
    state.me = await api("GET", "/v1/me");
  } catch (error) {
    if (!state.token) return;
    if (error instanceof Unreachable) {
      showLost("The server is not reachable. Retrying…");
      setTimeout(() => state.token && enter(attempt + 1), Math.min(10_000, 500 * 2 ** attempt));
      return;
    }
    showSignIn(sentence(error.message));
    return;
  }
  $("sign-out").title = plain(`Signed in as ${state.me.name}`);
  $("new").hidden = !may("chat");
  list.refresh();
  watch.start();
  go();
}

export function signedOut(why) {
  state.token = null;
  keep.set("token", null);
  watch.stop();
  state.talk?.close();
  state.talk = null;
  for (const card of cards.values()) card.node.remove();
  cards.clear();
  state.hasInbox = false;
  forgetConnection();
  list.items = [];
  list.isLoaded = false;
  fill($("threads"));
  updateCounts();
  showSignIn(why);
}

refused.signIn = signedOut;
